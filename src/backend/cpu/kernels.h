#pragma once

#include "backend/ops.h"

/// The CPU's kernels, compiled once per instruction set from kernels/*.cpp. Every kernel cuts its work by problem size,
/// never by thread count, so that results do not depend on the number of threads.
///
/// Those files are compiled with instructions that the running machine may lack, so nothing in them may leave an inline
/// function that the linker could share with the rest of the program: they use no standard containers or algorithms.
namespace drover::cpu {

/// Reports a dtype that the checks should have kept from a kernel, and aborts. Defined outside the kernels: the
/// strings of bug() are inline code.
[[noreturn]] void unexpected_dtype();

/// EmbeddingBackward with the tokens of each vocabulary row chained in ascending order, so that a row can be summed in
/// fp32 and written once. The chains are made by the backend: they need memory, which kernels do not allocate.
struct GroupedEmbeddingBackward {
    const EmbeddingBackward& operation;
    const std::int32_t* first;  ///< [V] the first token of each row of dweight, −1 for none
    const std::int32_t* next;   ///< [N] the next token of the same row, −1 at the end
};

/// Chains of multiply-adds on values in registers, independent of each other, on every thread: nothing but arithmetic.
struct PeakLoop {
    DType arithmetic;          ///< f32, or bf16 where the processor has AVX512_BF16
    std::int64_t repetitions;  ///< of every chain
    double* flops_per_second;  ///< set to the sum over threads, each by its own processor time: what other
                               ///< programs take away does not show
};

#define DROVER_CPU_KERNELS(declare)        \
    declare(bias_gradient, BiasGradient)   \
    declare(embedding, Embedding)          \
    declare(embedding_backward, GroupedEmbeddingBackward) \
    declare(rms_norm, RmsNorm)             \
    declare(rms_norm_backward, RmsNormBackward)    \
    declare(rope, Rope)                    \
    declare(swiglu, Swiglu)                \
    declare(swiglu_backward, SwigluBackward)       \
    declare(attention, Attention)          \
    declare(attention_backward, AttentionBackward) \
    declare(cached_attention, CachedAttention) \
    declare(cross_entropy_statistics, CrossEntropyStatistics) \
    declare(cross_entropy_rescale, CrossEntropyRescale)       \
    declare(cross_entropy_gradient, CrossEntropyGradient)     \
    declare(jitter_tokens, JitterTokens)  \
    declare(router, Router)  \
    declare(router_backward, RouterBackward)  \
    declare(balance_loss, BalanceLoss)  \
    declare(sort_by_expert, SortByExpert)  \
    declare(tokens_to_rows, TokensToRows)  \
    declare(rows_to_tokens, RowsToTokens)  \
    declare(weight_rows, WeightRows)  \
    declare(sum_of_squares, SumOfSquares)  \
    declare(clip_factor, ClipFactor)       \
    declare(adamw, AdamW)                  \
    declare(sgd, Sgd)                      \
    declare(adagrad, Adagrad)              \
    declare(rmsprop, Rmsprop)              \
    declare(adafactor_sums, AdafactorSums) \
    declare(adafactor_factors, AdafactorFactors)\
    declare(adafactor_squares, AdafactorSquares)\
    declare(adafactor_update, AdafactorUpdate)\
    declare(fill, Fill)                    \
    declare(cast, Cast)                    \
    declare(add, Add)                      \
    declare(sum, Sum)                      \
    declare(peak_loop, PeakLoop)

/// One function per operation, all of one instruction set.
struct Kernels {
#define DROVER_DECLARE(name, Operation) void (*name)(const Operation&);
    DROVER_CPU_KERNELS(DROVER_DECLARE)
#undef DROVER_DECLARE
};

namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

#ifdef DROVER_ISA
namespace DROVER_ISA {
#define DROVER_DECLARE(name, Operation) void name(const Operation&);
DROVER_CPU_KERNELS(DROVER_DECLARE)
#undef DROVER_DECLARE
}  // namespace DROVER_ISA
#endif

}  // namespace drover::cpu
