#pragma once

#include "app/run_clm_sources.h"
#include "run/batch_layout.h"
#include "train/loop/training_data.h"

/// The batches of a run of `drover run_clm`.
namespace drover {

/// What is trained on, in the order that the arguments ask for. `tokens` must outlive it.
std::unique_ptr<TrainingData> training_data(const Arguments& arguments, const TrainerSettings& settings,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout);
/// What is evaluated, once and in order.
std::unique_ptr<TrainingData> evaluation_data(const Arguments& arguments, const TrainerSettings& settings,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout);

}  // namespace drover
