#pragma once

#include <vector>

#include "core/range.h"
#include "model/config.h"
#include "model/recompute.h"
#include "parallel/schedule/simulate.h"

namespace drover {

/// Consecutive layers that are computed as one: a stage of a pipeline, or the whole model without one.
struct ModelChunk {
    Range blocks;  ///< of the model
    bool embeds = true;
    bool has_head = true;

    bool operator==(const ModelChunk&) const = default;
};

/// The stages of a pipeline, first layer first. Without cuts, blocks are dealt out evenly and the remainder
/// goes to the last stages. `cuts` names the first block of every stage but the first. Error when a stage has
/// no block.
std::vector<ModelChunk> cut_into_stages(const ModelConfig& config, int stages, const std::vector<int>& cuts);

/// What the cost of a layer depends on besides the config.
struct StageWork {
    std::int64_t row_length = 1;
    RecomputePolicy recompute{};
};

/// How long a stage takes for a token, in floating-point operations. Of gradients, those that cannot wait
/// belong to the first part of the backward pass: the head's, which computes loss and gradients at once, and
/// the experts'.
StageTimes stage_times(const ModelConfig& config, const ModelChunk& chunk, const StageWork& work);

/// Cuts with which the most expensive stage costs least. Where several do, costs are as even as the later
/// stages allow, and the later of two stages is the larger one. Error if there are fewer blocks than stages.
std::vector<int> balanced_cuts(const ModelConfig& config, int stages, const StageWork& work);

}  // namespace drover
