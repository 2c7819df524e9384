#pragma once

#include <optional>
#include <string>
#include <vector>

namespace drover {

class Command;

/// A few words about a command, for lists.
std::string summary_of(const Command& command);

/// `drover --help`: one screen, commands by what a reader wants to do.
std::string program_help(const Command& program);

/// The help of the command that the first of the words name, about the topic that the others name: nothing,
/// a flag, or what help_answer() knows. UsageError if there is no such command or topic.
std::string help_of(const Command& program, std::vector<std::string> words);

/// help_of() where the words are those of a command without a table of arguments and have `--help TOPIC`;
/// otherwise absent, because the command does what they ask for.
std::optional<std::string> help_on_topic(const Command& program, std::vector<std::string> words);

}  // namespace drover
