#include "run/nxd_checkpoint.h"

#include <fmt/format.h>

#include "convert/open_training_checkpoint.h"
#include "convert/shard_weights.h"
#include "core/error.h"

namespace drover {
namespace {

TrainingCheckpoint open_step(const std::filesystem::path& folder, const ModelConfig& config) {
    const ShardedCheckpoint shards(folder, std::nullopt, std::nullopt, std::nullopt, "model");
    std::optional<TrainingCheckpoint> checkpoint = open_training_checkpoint(
        folder,
        {.model_key = "model", .nxd = {.kv_multiplier = kv_multiplier_of(shards, config), .config = config}});
    if (!checkpoint)
        throw Error(
            fmt::format("{} has no state of an optimizer.", folder.string()),
            "Start from its weights alone: --loading_step -1 --pretrained_weight_dir and that folder.");
    return std::move(*checkpoint);
}

}  // namespace

NxdCheckpoint::NxdCheckpoint(const std::filesystem::path& folder, const ModelConfig& config)
    : folder_(folder),
      checkpoint_(open_step(folder, config)),
      weights_(*checkpoint_.source, std::move(checkpoint_.weights), folder.string()),
      states_(*checkpoint_.source, std::move(checkpoint_.states), folder.string()) {}

Tensor NxdCheckpoint::find(const std::string& kind, const std::string& leaf) const {
    const PlannedTensor* const planned = states_.find(fmt::format("{}/{}", kind, leaf));
    if (planned == nullptr) return {};
    state_ = states_.read(*planned);
    Shape shape;
    for (const std::int64_t size : planned->shape) shape.append(size);
    return Tensor::of(state_.data(), shape);
}

}  // namespace drover
