#pragma once

#include <string>
#include <string_view>

namespace drover {

/// A shared library that belongs to the program and is loaded only when it is needed: beside the program, or
/// in the folder where it was built. An environment variable may name the file instead.
struct ProgramModule {
    void* handle = nullptr;  ///< for dlsym; nullptr when it could not be loaded
    std::string place;       ///< the file that was loaded
    std::string reason;      ///< why it was not: "the module x.so is not there (looked for: …)"
};

/// Loads `file_name` and keeps it for the rest of the process.
ProgramModule load_program_module(std::string_view file_name, const char* environment_variable);

}  // namespace drover
