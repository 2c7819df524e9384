#pragma once

#include "run/batch_layout.h"
#include "run/token_source.h"
#include "train/loop/training_data.h"

/// The batches of a run.
namespace drover {

/// The training data, in the order that the settings request. `loop` are the run's settings after
/// deal_batches(); `tokens` must outlive the result.
std::unique_ptr<TrainingData> training_data(const RunSettings& settings, const TrainerSettings& loop,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout);
/// The evaluation data, once and in order.
std::unique_ptr<TrainingData> evaluation_data(const RunSettings& settings, const TrainerSettings& loop,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout);

}  // namespace drover
