#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "args/arguments.h"
#include "args/environment_table.h"

/// What the commands that train have in common: from words to arguments.
namespace drover {

struct ArgumentFile;

struct ParseOptions {
    Environment environment{};
    /// A file of arguments that was taken out of the words already (take_argument_file()).
    const ArgumentFile* file = nullptr;
    /// Its words precede those of the command line; ignored if the file does not exist, or if there is a file
    /// of arguments.
    std::filesystem::path args_file{};
    std::int64_t world_size = 1;  ///< processes that were started together
};

/// The arguments of a command as the words after its name set them. A file of arguments may stand first
/// (argument_file.h); the words after it take precedence. Nothing is derived or checked yet. UsageError if a
/// word is wrong.
Arguments read_arguments(const ArgumentTable& table, std::span<const std::string> words,
                         const ParseOptions& options);

/// Adds the line of every argument that was given and is only explained.
void explain_given(Arguments& arguments);
/// Explains that a process trains alone if only WORLD_SIZE says otherwise.
void explain_lone_process(Arguments& arguments, const ParseOptions& options);

}  // namespace drover
