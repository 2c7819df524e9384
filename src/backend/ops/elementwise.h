#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Arithmetic on tensors of any shape.
namespace drover {

/// Every element becomes `value` (floating types, or integers for integer tensors). May be strided.
struct Fill {
    Tensor x;
    double value = 0;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// to = from, converted to to's dtype. f32, bf16 or f16; rank ≤ 2 may be strided.
struct Cast {
    Tensor from;
    Tensor to;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// x *= factor in fp32, rounded once. A matrix, whose rows may be strided.
struct Scale {
    Tensor x;  ///< [N,C]
    float factor = 1;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// y = xᵀ (+ y if accumulate), added in fp32. Rows may be strided.
struct Transpose {
    Tensor x;  ///< [R,C]
    Tensor y;  ///< [C,R], any precision
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// into += x, summed in fp32 and rounded to into's dtype. Both packed.
struct Add {
    Tensor into;
    Tensor x;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// out = (accumulate ? out : 0) + scale · sum of x, in f64, in a fixed order.
struct Sum {
    Tensor x;    ///< [n] f32 or f64
    Tensor out;  ///< [1] f64
    bool accumulate = false;
    double scale = 1;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
