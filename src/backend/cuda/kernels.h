#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/scratch.h"
#include "backend/ops.h"

/// The hand-written kernels, one file per operation or pair in kernels/. Each function enqueues its operation
/// on the stream and returns; it never waits for the device. All are deterministic: sums are made in an order
/// that depends on sizes only.
namespace drover::cuda {

/// Where an operation runs.
struct Launch {
    cudaStream_t stream;
    Scratch& scratch;    ///< valid until the function's last kernel has run
    DeviceTable& table;  ///< this operation's own
    int multiprocessors;
};

#define DROVER_CUDA_KERNELS(declare)                                                                         \
    declare(bias_gradient, BiasGradient) declare(embedding, Embedding)                                       \
        declare(embedding_backward, EmbeddingBackward) declare(rms_norm, RmsNorm)                            \
            declare(rms_norm_backward, RmsNormBackward) declare(rope, Rope) declare(swiglu, Swiglu)          \
                declare(swiglu_backward, SwigluBackward) declare(cached_attention, CachedAttention) declare( \
                    cross_entropy_statistics, CrossEntropyStatistics)                                        \
                    declare(cross_entropy_rescale, CrossEntropyRescale) declare(                             \
                        cross_entropy_gradient, CrossEntropyGradient) declare(jitter_tokens, JitterTokens)   \
                        declare(router, Router) declare(router_backward, RouterBackward)                     \
                            declare(balance_loss, BalanceLoss) declare(sort_by_expert, SortByExpert)         \
                                declare(tokens_to_rows, TokensToRows) declare(rows_to_tokens, RowsToTokens)  \
                                    declare(weight_rows, WeightRows) declare(sum_of_squares, SumOfSquares)   \
                                        declare(clip_factor, ClipFactor) declare(adamw, AdamW)               \
                                            declare(sgd, Sgd) declare(adagrad, Adagrad)                      \
                                                declare(rmsprop, Rmsprop)                                    \
                                                    declare(adafactor_sums, AdafactorSums)                   \
                                                        declare(adafactor_factors, AdafactorFactors)         \
                                                            declare(adafactor_squares, AdafactorSquares)     \
                                                                declare(adafactor_update, AdafactorUpdate)   \
                                                                    declare(fill, Fill) declare(cast, Cast)  \
                                                                        declare(add, Add) declare(sum, Sum)

#define DROVER_DECLARE(name, Operation) void name(const Launch& launch, const Operation& operation);
DROVER_CUDA_KERNELS(DROVER_DECLARE)
#undef DROVER_DECLARE

/// Attention in plain arithmetic, for what cuDNN does not take (fp32, odd head sizes).
void plain_attention(const Launch& launch, const Attention& operation);
void plain_attention_backward(const Launch& launch, const AttentionBackward& operation);

}  // namespace drover::cuda
