#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

/// Parsing helpers for the sub-commands that CLI11 reads.
namespace drover {

class Command;

/// The words after the program's name, with flags spelled as their command defines them: hyphens and
/// underscores are equivalent, as in run_clm. Words that a command passes on (run_clm, launch) are unchanged.
std::vector<std::string> known_spellings(const Command& program, std::vector<std::string> words);

/// The command in `command` of that name, with hyphens or underscores.
std::optional<Command> find_written_command(const Command& command, const std::string& name);

/// The commands that the first of the words name, the outermost first; `words` loses them. Empty: none is
/// named.
std::vector<Command> take_command(const Command& program, std::vector<std::string>& words);

/// For a name that is no command of the program: suggests what may have been meant, also where other
/// programs have other names for it.
UsageError no_such_command(const Command& program, const std::string& name);

/// The flag of a command that was most likely meant by `flag`, both with leading hyphens; empty if none is
/// close.
std::string nearest_flag(const Command& command, const std::string& flag);

/// For the first word that a command passes on, when it begins with hyphens: it was meant as a flag of the
/// command. `otherwise` is the remedy when it resembles none.
UsageError unknown_flag(const Command& command, const std::string& flag, const std::string& otherwise);

/// For words that no command took: names them in order, with the flags and commands they resemble. The word
/// after an unknown flag counts as its value.
UsageError not_expected(const Command& program);

}  // namespace drover
