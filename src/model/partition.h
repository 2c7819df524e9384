#pragma once

#include <vector>

#include "core/range.h"
#include "model/config.h"

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

}  // namespace drover
