#pragma once

#include "args/parse_arguments.h"
#include "drover/trainer.h"

namespace drover::v1 {

/// A Trainer's arguments as those of run_clm, whose rules and checks count, for a run of so many processes.
/// UsageError when they contradict each other; Error when they ask for FSDP v2 and it is not enabled.
RunArguments checked_arguments(const TrainerParts& parts, int processes);

}  // namespace drover::v1
