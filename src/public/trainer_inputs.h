#pragma once

#include "drover/trainer.h"
#include "run/training_run.h"

namespace drover::v1 {

/// The model, tokenizer and rows given to a Trainer. Error if a row has a token that is not in the model's
/// vocabulary.
RunInputs inputs_of(const TrainerParts& parts, const Processes& processes);

}  // namespace drover::v1
