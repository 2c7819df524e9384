#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// The norm before each part of a block, with the addition to the residual stream.
namespace drover {

/// residual_out = residual_in + x (when x is given), rounded to the residual's dtype;
/// y = round(residual_out · rstd) · weight with rstd = rsqrt(mean(residual_out²) + eps); statistics in fp32.
/// The inner rounding is to the residual's dtype (none when that is f32), as in Hugging Face's module; the
/// product is rounded to y's. Without x, residual_out is not written and may be absent.
struct RmsNorm {
    Tensor x{};             ///< [N,H], optional, dtype of y
    Tensor residual_in;     ///< [N,H], dtype of y or f32
    Tensor residual_out{};  ///< [N,H], dtype of residual_in; may alias residual_in
    Tensor weight;          ///< [H], dtype of y or f32
    Tensor y;               ///< [N,H]
    Tensor rstd;            ///< [N] f32
    Tensor maximum{};       ///< [1] f32, optional: raised to the largest |y|, as AbsoluteMaximum does
    float eps = 0;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dresidual = dresidual_out + d(norm)/d(residual_out)ᵀ · dy; dweight (+)= sum over rows of dy · residual_out
/// · rstd.
struct RmsNormBackward {
    Tensor dy;               ///< [N,H]
    Tensor residual_out;     ///< [N,H], what the forward normalised
    Tensor weight;           ///< [H]
    Tensor rstd;             ///< [N] f32
    Tensor dresidual_out{};  ///< [N,H], optional: gradient that arrives through the residual stream
    Tensor dresidual;        ///< [N,H], dtype of residual_out; may alias dresidual_out
    Tensor dweight{};        ///< [H], f32 or bf16, optional; summed in fp32 and rounded once
    Tensor y{};              ///< [N,H], dtype of dy, optional: the forward's result, recomputed
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
