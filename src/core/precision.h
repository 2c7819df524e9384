#pragma once

#include "core/dtype.h"

namespace drover {

/// The number formats of a training run. Weights are used in the format they are stored in; a master copy, if
/// any, is what the optimizer updates and is always fp32.
struct Precision {
    DType parameters = DType::f32;
    DType residual = DType::f32;  ///< the residual stream: the parameters' format, or fp32
    DType gradients = DType::f32;
    DType moments = DType::f32;
    bool master = false;
    /// Updates are rounded to one of the two neighbouring bf16 numbers, so that the mean is exact and small
    /// updates are not lost. Only with bf16 parameters that have no master copy.
    bool stochastic_rounding = false;

    static Precision fp32() { return {}; }
    /// Everything bf16, as a Hugging Face model cast to bf16 trains.
    static Precision pure_bf16() {
        return {.parameters = DType::bf16,
                .residual = DType::bf16,
                .gradients = DType::bf16,
                .moments = DType::bf16};
    }
    /// Matrices in half precision (bf16 or fp16) with an fp32 master copy, fp32 gradients and moments.
    static Precision with_master(DType half) {
        return {.parameters = half, .residual = half, .master = true};
    }
};

}  // namespace drover
