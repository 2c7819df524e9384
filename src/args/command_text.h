#pragma once

#include <span>
#include <string_view>

#include "args/argument_table.h"

namespace drover {

/// An argument that many command lines have, in a few words.
struct CommonArgument {
    std::string_view name, meaning;
};

struct CommonGroup {
    std::string_view title;
    std::span<const CommonArgument> arguments;
};

/// What help, man page and docs page of a command say besides its table.
struct CommandText {
    std::string_view usage;     ///< lines without "drover COMMAND" before them
    std::string_view summary;   ///< a sentence
    std::string_view examples;  ///< whole command lines, of at most 96 columns
    std::span<const CommonGroup> common;
    std::string_view page;   ///< what the page in docs/ says of it
    std::string_view notes;  ///< more items of the page's list of how arguments are written
};

const CommandText& command_text(const ArgumentTable& table);

}  // namespace drover
