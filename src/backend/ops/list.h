#pragma once

#include "backend/ops/adapters.h"
#include "backend/ops/attention.h"
#include "backend/ops/cross_entropy.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/experts.h"
#include "backend/ops/fp8.h"
#include "backend/ops/gemm.h"
#include "backend/ops/head_norm.h"
#include "backend/ops/optimizer.h"
#include "backend/ops/rms_norm.h"
#include "backend/ops/swiglu.h"

/// The list of operations. Everything that must cover all operations is generated from it or checked against
/// it: the interface of a backend (backend.h), the kernels of each device (cpu/kernels.h, cuda/kernels.h),
/// the names in messages, and the test that `drover bench ops` has a line for each. docs/howto/operation.md
/// says how to add one.
///
/// In the operations' comments N = tokens of a micro-batch, H = hidden size, D = head size, V = vocabulary
/// rows held here. Unless a comment says otherwise, an output may not overlap an input. Only optional
/// operands have an initialiser. A required operand that was left out is absent, and check() finds it.

// clang-format off

/// Operations for which every device has a kernel of that name.
#define DROVER_KERNEL_OPERATIONS(operation)                           \
    operation(bias_gradient, BiasGradient)                            \
    operation(embedding, Embedding)                                   \
    operation(embedding_backward, EmbeddingBackward)                  \
    operation(rms_norm, RmsNorm)                                      \
    operation(rms_norm_backward, RmsNormBackward)                     \
    operation(head_norm, HeadNorm)                                    \
    operation(head_norm_backward, HeadNormBackward)                   \
    operation(rope, Rope)                                             \
    operation(swiglu, Swiglu)                                         \
    operation(swiglu_backward, SwigluBackward)                        \
    operation(attention, Attention)                                   \
    operation(attention_backward, AttentionBackward)                  \
    operation(cached_attention, CachedAttention)                      \
    operation(cross_entropy_statistics, CrossEntropyStatistics)       \
    operation(cross_entropy_rescale, CrossEntropyRescale)             \
    operation(cross_entropy_gradient, CrossEntropyGradient)           \
    operation(jitter_tokens, JitterTokens)                            \
    operation(router, Router)                                         \
    operation(router_backward, RouterBackward)                        \
    operation(balance_loss, BalanceLoss)                              \
    operation(sort_by_expert, SortByExpert)                           \
    operation(tokens_to_rows, TokensToRows)                           \
    operation(rows_to_tokens, RowsToTokens)                           \
    operation(weight_rows, WeightRows)                                \
    operation(drop_elements, DropElements)                            \
    operation(adapted_squares, AdaptedSquares)                        \
    operation(magnitude_factors, MagnitudeFactors)                    \
    operation(scale_columns, ScaleColumns)                            \
    operation(magnitude_gradient, MagnitudeGradient)                  \
    operation(absolute_maximum, AbsoluteMaximum)                      \
    operation(quantise, Quantise)                                     \
    operation(quantise_blocks, QuantiseBlocks)                        \
    operation(fp8_transpose, Fp8Transpose)                            \
    operation(sum_of_squares, SumOfSquares)                           \
    operation(clip_factor, ClipFactor)                                \
    operation(adamw, AdamW)                                           \
    operation(sgd, Sgd)                                               \
    operation(adagrad, Adagrad)                                       \
    operation(rmsprop, Rmsprop)                                       \
    operation(adafactor_sums, AdafactorSums)                          \
    operation(adafactor_factors, AdafactorFactors)                    \
    operation(adafactor_squares, AdafactorSquares)                    \
    operation(adafactor_update, AdafactorUpdate)                      \
    operation(fill, Fill)                                             \
    operation(cast, Cast)                                             \
    operation(scale, Scale)                                           \
    operation(transpose, Transpose)                                   \
    operation(add, Add)                                               \
    operation(sum, Sum)

/// Operations that a device runs with a library or its own engine.
#define DROVER_MATRIX_PRODUCTS(operation)                             \
    operation(gemm, Gemm)                                             \
    operation(fp8_gemm, Fp8Gemm)                                      \
    operation(grouped_gemm, GroupedGemm)                              \
    operation(grouped_fp8_gemm, GroupedFp8Gemm)

// clang-format on

#define DROVER_OPERATIONS(operation)    \
    DROVER_KERNEL_OPERATIONS(operation) \
    DROVER_MATRIX_PRODUCTS(operation)

namespace drover {

/// "rms_norm": its name in messages. Only listed operations have a name.
#define DROVER_NAME(name, Listed)                              \
    constexpr std::string_view operation_name(const Listed&) { \
        return #name;                                          \
    }
DROVER_OPERATIONS(DROVER_NAME)
#undef DROVER_NAME

}  // namespace drover
