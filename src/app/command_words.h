#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace CLI {
class App;
}

/// The command lines of the sub-commands that CLI11 reads.
namespace drover {

/// The words behind the program's name, with flags spelled as their command has them: hyphens and underscores
/// are the same, as in run_clm. Words that a command hands on (run_clm, launch) stay as they are.
std::vector<std::string> known_spellings(const CLI::App& app, std::vector<std::string> words);

/// The flag of a command that `flag` was most likely meant to be, both with hyphens in front; empty when none
/// is near.
std::string nearest_flag(const CLI::App& command, const std::string& flag);

/// For words that no command took: names them in their order, and the flags and commands that they are near.
/// The word behind an unknown flag counts as its value.
UsageError not_expected(const CLI::App& app);

}  // namespace drover
