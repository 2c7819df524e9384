#pragma once

#include "drover/trainer.h"
#include "run/settings/run_settings.h"

namespace drover::v1 {

/// The settings of a Trainer's run with this many processes: those of TrainingArguments, plus the environment
/// and TrainingArguments::more under the names of `drover run_clm`, with the same rules and checks.
/// UsageError if they contradict each other, or name something that a Trainer has as an object; Error if they
/// request FSDP v2 and it is not enabled.
RunSettings settings_of(const TrainerParts& parts, int processes);

}  // namespace drover::v1
