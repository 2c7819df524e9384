#pragma once

#include <string>
#include <vector>

namespace drover {

class Command;

/// A paragraph of a command's description, or an example's command line.
struct DescriptionPart {
    std::string text;
    bool is_example = false;
};

/// Paragraphs end where a line ends with a full stop.
std::vector<DescriptionPart> description_parts(const Command& command);

/// What --help prints for a command without a table of arguments: all its flags, or its common_flags().
std::string command_help(const Command& command);

/// The same with the whole description and all flags.
std::string full_command_help(const Command& command);

}  // namespace drover
