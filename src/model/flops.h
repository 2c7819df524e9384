#pragma once

#include "model/config.h"

/// What a model must compute for a token, in floating-point operations.
namespace drover {

/// The forward pass of one block.
struct BlockFlops {
    double products = 0;      ///< with weights: either of their gradients takes as much
    double feed_forward = 0;  ///< of these, those of the feed-forward
    double gate_up = 0;       ///< of these, the first one
    double attention = 0;     ///< scores and sums of values: their gradients take twice as much

    double all() const { return products + attention; }
};

/// For rows of `row_length` tokens; of experts, those that a token chooses count.
BlockFlops block_flops(const ModelConfig& config, int block, std::int64_t row_length);

/// The logits.
double head_flops(const ModelConfig& config);

}  // namespace drover
