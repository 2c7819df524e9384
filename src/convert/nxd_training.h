#pragma once

#include <map>

#include "convert/nxd_optimizer.h"

namespace drover {

/// What a checkpoint of neuronx-distributed says about its run.
struct NxdRun {
    std::int64_t step = 0;
    std::int64_t epoch = 0, batch = 0;  ///< position in the data: batches of the epoch that were used
    double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
    std::int64_t data_ranks = 1;     ///< of ZeRO-1; 0: without, every rank has whole tensors
    std::optional<DType> rounded{};  ///< of the model's files, where the weights are master copies
    std::map<std::string, std::string> flags{};  ///< of its command, for people
};

/// A model and the state of its optimizer as step_N: model/, optim/, scheduler.pt, user_content.pt, and the
/// markers `checkpoint` and `done`. Weights whose names have "bias" or "norm" are in the group without weight
/// decay. Error as plan_shards_of_model().
ConversionPlan plan_nxd_training(const TrainingCheckpoint& checkpoint, const NxdSettings& settings,
                                 const NxdRun& run);

}  // namespace drover
