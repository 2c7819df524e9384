#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// The activation of the feed-forward part.
namespace drover {

/// y = silu(gate) · up, computed in fp32 and rounded as Hugging Face rounds: silu, then the product.
struct Swiglu {
    Tensor gate_up;    ///< [N,2I], gate in the first I columns
    Tensor y;          ///< [N,I]
    Tensor maximum{};  ///< [1] f32, optional: raised to the largest |y|, as AbsoluteMaximum does

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dgate‖dup from dy; dgate_up may alias gate_up.
struct SwigluBackward {
    Tensor gate_up;    ///< [N,2I]
    Tensor dy;         ///< [N,I]
    Tensor dgate_up;   ///< [N,2I]
    Tensor y{};        ///< [N,I], optional: the forward's result, recomputed
    Tensor maximum{};  ///< [1] f32, optional: raised to the largest |dgate_up|

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
