#pragma once

#include "run/batch_layout.h"
#include "run/token_source.h"
#include "train/loop/training_data.h"

/// The batches of a run.
namespace drover {

/// What is trained on, in the order that the settings ask for. `loop` are the run's, as deal_batches() has
/// left them; `tokens` must outlive what is returned.
std::unique_ptr<TrainingData> training_data(const RunSettings& settings, const TrainerSettings& loop,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout);
/// What is evaluated, once and in order.
std::unique_ptr<TrainingData> evaluation_data(const RunSettings& settings, const TrainerSettings& loop,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout);

}  // namespace drover
