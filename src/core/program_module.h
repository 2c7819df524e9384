#pragma once

#include <string>
#include <string_view>

namespace drover {

/// A shared library that belongs to the program and is loaded only when it is needed: beside the program or
/// the library that holds this code, in lib/drover of the tree in which they are installed, or, for programs
/// in the build folder, there. An environment variable may name the file instead.
struct ProgramModule {
    void* handle = nullptr;  ///< for dlsym; nullptr when it could not be loaded
    std::string place;       ///< the file that was loaded
    std::string reason;      ///< why it was not: "the module x.so is not there (looked for: …)"
};

/// Loads `file_name` and keeps it for the rest of the process.
ProgramModule load_program_module(std::string_view file_name, const char* environment_variable);

/// A function of a module, by its name in C.
struct ModuleFunction {
    void* address = nullptr;  ///< nullptr when there is none to use
    std::string reason{};     ///< why not
};

/// A module's own number, which must be the program's.
struct ModuleVersion {
    const char* function;  ///< int(), which gives it
    int expected;
};

/// Loads the module, unless it is of another version, and finds the function.
ModuleFunction load_module_function(std::string_view file_name, const char* environment_variable,
                                    const ModuleVersion& version, const char* name);

}  // namespace drover
