#pragma once

#include <string_view>

#include "train/engine/train_engine_options.h"

namespace drover {

/// Why the gradients of weights cannot be computed later than those of inputs, as in "because …"; empty if
/// they can: everything that they need is kept, and they are not reduced micro-batch by micro-batch.
std::string_view why_weights_cannot_wait(const TrainEngineOptions& options, int data_ranks);

}  // namespace drover
