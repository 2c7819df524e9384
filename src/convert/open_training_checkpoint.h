#pragma once

#include "convert/nxd_plan.h"
#include "convert/training_checkpoint.h"

namespace drover {

/// The folder of a checkpoint's run-wide files (config.json, trainer_state.json), for the folder or file that
/// has its weights.
std::filesystem::path home_of_checkpoint(const std::filesystem::path& weights);

/// How a checkpoint was written, where its files do not say it.
struct TrainingCheckpointOptions {
    std::string model_key{};  ///< entry of a saved dict that has the weights
    NxdSettings nxd{};
    std::optional<std::int64_t> tensor_ranks{}, pipeline_ranks{};  ///< checked if given
};

/// A checkpoint with the state of its optimizer: DeepSpeed's ZeRO; FSDP's, sharded or full, as Hugging Face's
/// Trainer lays it out or in one folder of torch.distributed.checkpoint; neuronx-distributed's step_N.
/// Nothing when it is none of these. Error when it is one that cannot be read.
std::optional<TrainingCheckpoint> open_training_checkpoint(const std::filesystem::path& folder_or_file,
                                                           const TrainingCheckpointOptions& options);

}  // namespace drover
