#pragma once

#include <string>
#include <vector>

#include "core/error.h"

/// Parsing helpers for the sub-commands that CLI11 reads.
namespace drover {

class Command;

/// The words after the program's name, with flags spelled as their command defines them: hyphens and
/// underscores are equivalent, as in run_clm. Words that a command passes on (run_clm, launch) are unchanged.
std::vector<std::string> known_spellings(const Command& program, std::vector<std::string> words);

/// The flag of a command that was most likely meant by `flag`, both with leading hyphens; empty if none is
/// close.
std::string nearest_flag(const Command& command, const std::string& flag);

/// For words that no command took: names them in order, with the flags and commands they resemble. The word
/// after an unknown flag counts as its value.
UsageError not_expected(const Command& program);

}  // namespace drover
