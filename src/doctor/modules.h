#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/program_module.h"
#include "doctor/build_facts.h"

namespace drover {

/// A module that the program may have (core/program_module.h).
struct ModuleKind {
    ModuleUse use;        ///< `use.impossible` begins the cause when it is not available
    std::string needs;    ///< whose libraries it uses: "Open MPI"
    std::string purpose;  ///< "several processes"
};

/// All of them, in the order in which they are shown.
const std::vector<ModuleKind>& module_kinds();

/// What became of loading one.
struct ExaminedModule {
    ModuleKind kind;
    std::string file{};     ///< where it was found; empty: nowhere
    bool named = false;     ///< by its variable
    bool loaded = false;    ///< and of this program's version
    std::string failure{};  ///< why not: a sentence
    std::string remedy{};   ///< for that failure
    std::string library{};  ///< what it uses, with its version: "Open MPI 4.1.4"
    Json facts =
        Json::object();  ///< more of the same; of "cuda": architectures, runtime_version, cudnn_version
};

/// Loads each.
std::vector<ExaminedModule> examine_modules(const BuildFacts& build);

/// What to do about a library that the loader named in `reason` ("libmpi.so.40: cannot open shared object
/// file: …"), with the package that has it; empty when it is not one that modules use.
std::string missing_library_advice(std::string_view reason, const BuildFacts& build);

}  // namespace drover
