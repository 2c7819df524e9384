#pragma once

#include "drover/trainer.h"
#include "run/settings/run_settings.h"

namespace drover::v1 {

/// The settings of a Trainer's run among so many processes: those of TrainingArguments, with what the
/// environment and TrainingArguments::more say by the names that `drover run_clm` has for it, under the same
/// rules and checks. UsageError when they contradict each other, or name what a Trainer has as an object;
/// Error when they ask for FSDP v2 and it is not enabled.
RunSettings settings_of(const TrainerParts& parts, int processes);

}  // namespace drover::v1
