#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// The norm of every head's queries and keys, before their rotation.
namespace drover {

/// y = round(x · rstd) · weight with rstd = rsqrt(mean(x²) + eps) of each head of each token; statistics in
/// fp32. The inner rounding is to x's dtype, as in RmsNorm. Keeps nothing for backward.
struct HeadNorm {
    Tensor x;       ///< [N,heads,D], may be strided (a column range of the packed q‖k‖v)
    Tensor weight;  ///< [D], dtype of x or f32
    Tensor y;       ///< [N,heads,D], dtype of x, may be strided in another way; may be x itself
    float eps = 0;

    static constexpr std::int64_t largest_head = 256;  ///< D, which is even

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dx = d(norm)/d(x)ᵀ · dy; dweight (+)= sum over tokens and heads of dy · x · rstd, with rstd computed
/// again.
struct HeadNormBackward {
    Tensor dy;         ///< [N,heads,D], may be strided
    Tensor x;          ///< [N,heads,D], dtype of dy, may be strided: what the forward normalised
    Tensor weight;     ///< [D], dtype of dy or f32
    Tensor dx;         ///< [N,heads,D], dtype of dy, may be strided; may be dy itself
    Tensor dweight{};  ///< [D], f32 or bf16 (on a GPU also f16), optional; summed in fp32 and rounded once
    float eps = 0;
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
