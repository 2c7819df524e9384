#pragma once

#include "drover/trainer.h"
#include "run/training_run.h"

namespace drover::v1 {

/// Model, tokenizer and rows that a Trainer was given. Error when a row has a token that the model has not.
RunInputs inputs_of(const TrainerParts& parts);

}  // namespace drover::v1
