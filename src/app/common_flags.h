#pragma once

#include <span>

#include "args/command_text.h"

namespace drover {

class Command;

/// The flags that --help alone shows of a command with more of them than fit on a screen, in groups. Empty:
/// it shows them all.
std::span<const CommonGroup> common_flags(const Command& command);

}  // namespace drover
