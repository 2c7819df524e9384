#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace drover {

/// A shared library that belongs to the program and is loaded only when it is needed, so that the program
/// starts where the module's dependencies (CUDA, MPI, …) are not installed. The module "mpi" is the file
/// drover_mpi.so, beside the program or the library that holds this code, or in lib/drover of the tree in
/// which they are installed. DROVER_MPI_MODULE may name the file instead.
struct LoadedModule {
    void* handle = nullptr;  ///< nullptr when it could not be loaded
    std::string place;       ///< the file that was loaded
    std::string reason;      ///< why it was not: "the module drover_mpi.so was not found (searched: …)"
};

/// The file of the module of this name, which is not loaded; empty when there is none.
std::filesystem::path find_module(std::string_view name);
/// "DROVER_MPI_MODULE", the variable that may name the file of the module "mpi".
std::string module_variable(std::string_view name);

/// Loads the module of this name and keeps it for the rest of the process.
LoadedModule load_module(std::string_view name);

/// A module that the program needs, and its error message when the module is not available.
struct ModuleUse {
    std::string_view name;   ///< "mpi"
    int version = 0;         ///< what the module's `extern "C" int drover_mpi_module_version()` returns
    std::string impossible;  ///< begins the error's cause: "Several GPUs cannot work together"
    std::string_view remedy{};

    /// For a use that is impossible for this reason.
    Error error(std::string_view reason) const;
    /// The module's function of this name; Error when the module cannot be loaded or is of another version.
    void* address(const char* function) const;
    template <class Function>
    Function* function(const char* function_name) const {
        return reinterpret_cast<Function*>(address(function_name));
    }
};

}  // namespace drover
