#pragma once

#include <cstdint>
#include <optional>

#include "core/precision.h"
#include "model/adapters.h"
#include "model/block_shape.h"
#include "model/fp8_recipe.h"
#include "model/recompute.h"

namespace drover {

/// Whether the next unit's weights are requested while one computes, or only when they are needed. Without
/// sharded weights it makes no difference.
struct GatherAhead {
    bool forward = true;
    bool backward = true;
};

/// The largest micro-batch that a model must hold, and how it trades memory for time.
struct CausalLmOptions {
    Precision precision;
    RecomputePolicy recompute;
    Fp8Recipe fp8 = Fp8Recipe::none;
    /// With FP8, frozen weights are quantised once, and a byte per weight is kept; otherwise for every
    /// product. The numbers are the same.
    bool keeps_frozen_fp8 = true;
    MoeMode moe_mode = MoeMode::grouped;
    std::int64_t rows = 1;        ///< of the largest micro-batch
    std::int64_t row_length = 1;  ///< of the longest row
    double label_smoothing = 0;  ///< ε: targets are (1 − ε) · one-hot + ε / V, in training and in evaluation
    std::optional<DType> rope_rounding{};  ///< of the cosines and sines; absent: as the residual stream
    double neftune_alpha = 0;  ///< training adds U(−m, m) to the embeddings, m = alpha / √(row length · H)
    GatherAhead gather_ahead{};
    Adapters adapters{};                 ///< of a model that is not trained whole
    bool counts_predictions = false;     ///< losses also leave entropy() and correct()
    bool weight_gradients_wait = false;  ///< backwards come in two parts
    bool one_micro_batch = false;  ///< in an update, at most: activations may use memory of later gradients
    int batches = 1;               ///< micro-batches that are on their way through the rank at a time
};

}  // namespace drover
