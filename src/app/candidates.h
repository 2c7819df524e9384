#pragma once

#include <string>
#include <vector>

#include "args/argument_candidates.h"

namespace drover {

class Command;

/// What a shell may offer for the last of the words, which is unfinished and may be empty.
Candidates candidates(const Command& program, std::vector<std::string> words);

}  // namespace drover
