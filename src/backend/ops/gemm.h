#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Matrix products and the gradient of their bias.
namespace drover {

/// c = op(a) · op(b) (+ bias) (+ c if accumulate), products summed in fp32.
/// a and b have the same dtype (f32 or bf16, on a GPU also f16, as everywhere below); c has that dtype or
/// f32.
struct Gemm {
    Tensor a;       ///< [M,K], or [K,M] when transpose_a
    Tensor b;       ///< [K,N], or [N,K] when transpose_b
    Tensor c;       ///< [M,N]
    Tensor bias{};  ///< [N], optional; added to every row
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;

    /// y[N,out] = x[N,in] · weight[out,in]ᵀ (+ bias[out])
    static Gemm forward(Tensor x, Tensor weight, Tensor y, Tensor bias = {}) {
        return {.a = x, .b = weight, .c = y, .bias = bias, .transpose_b = true};
    }
    /// dx[N,in] = dy[N,out] · weight[out,in]
    static Gemm data_gradient(Tensor dy, Tensor weight, Tensor dx) { return {.a = dy, .b = weight, .c = dx}; }
    /// dweight[out,in] (+)= dy[N,out]ᵀ · x[N,in]
    static Gemm weight_gradient(Tensor dy, Tensor x, Tensor dweight, bool accumulate) {
        return {.a = dy, .b = x, .c = dweight, .transpose_a = true, .accumulate = accumulate};
    }

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dbias (+)= sum over rows of dy, in fp32.
struct BiasGradient {
    Tensor dy;     ///< [N,C]
    Tensor dbias;  ///< [C], dtype of dy or f32
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
