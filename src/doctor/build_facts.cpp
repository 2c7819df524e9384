#include "doctor/build_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/program_module.h"
#include "doctor/modules.h"

namespace drover {

std::string version_line(const BuildFacts& build) {
    return fmt::format("drover {} (commit {}{})", build.version,
                       build.commit.empty() ? "unknown" : build.commit, build.modified ? ", modified" : "");
}

std::string build_line(const BuildFacts& build) {
    return fmt::format(
        "{} build, {}, {}", build.type, build.compiler,
        build.cuda.empty() ? "without CUDA" : fmt::format("CUDA {} for {}", build.cuda, build.architectures));
}

std::string version_text(const BuildFacts& build) {
    std::vector<std::string> found;
    for (const ModuleKind& kind : module_kinds())
        if (!find_module(kind.use.name).empty()) found.emplace_back(kind.use.name);
    return fmt::format("{}\n{}\nmodules: {}", version_line(build), build_line(build),
                       found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")));
}

}  // namespace drover
