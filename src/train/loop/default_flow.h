#pragma once

#include "train/state/trainer_state.h"

namespace drover {

/// Sets the switches that an update or the end of an epoch calls for, as Hugging Face's DefaultFlowCallback.
void flow_after_step(const TrainerSettings& settings, const TrainerState& state, TrainerControl& control);
void flow_after_epoch(const TrainerSettings& settings, const TrainerState& state, TrainerControl& control);

}  // namespace drover
