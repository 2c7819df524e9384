#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Products of FP8 matrices, and how their operands are made (docs/design/fp8.md).
///
/// A tensor x is kept as FP8 numbers y and one scale: x ≈ scale · y with scale = max|x| / 448, so the largest
/// element just fits. A maximum does not depend on the order in which it is found.
namespace drover {

/// maximum = max(maximum, |x|) over all elements; NaN if one is NaN.
struct AbsoluteMaximum {
    Tensor x;        ///< [R,C], may be strided
    Tensor maximum;  ///< [1] f32, never negative

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// scale = m / 448 and y = x · (448 / m), in fp32, rounded once, with m = max(maximum, 2⁻¹⁰⁰): zeros stay
/// zeros. If the maximum is infinite or NaN, elements become NaN.
struct Quantise {
    Tensor x;             ///< [R,C], may be strided
    Tensor maximum;       ///< [1] f32: of x, or larger
    Tensor y{};           ///< [R,C] f8, packed, optional
    Tensor transposed{};  ///< [C,P] f8, packed, optional, P ≥ R a multiple of 16: yᵀ, then zeros
    Tensor scale;         ///< [1] f32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// The least that Quantise takes for the largest magnitude.
inline constexpr float smallest_maximum = 0x1p-100f;

/// c = scale_a · scale_b · (a · bᵀ) (+ bias) (+ c if accumulate); products are summed in fp32, or, where
/// `fast`, in what a GPU's matrix unit has: about 13 bits of mantissa.
struct Fp8Gemm {
    Tensor a;                 ///< [M,K] f8, packed; K a multiple of 16
    Tensor b;                 ///< [N,K] f8, packed; N a multiple of 16
    Tensor c;                 ///< [M,N], a dtype of activations
    Tensor scale_a, scale_b;  ///< [1] f32, at multiples of 16 bytes
    Tensor bias{};            ///< [N], optional, dtype of c or f32
    bool accumulate = false;
    bool fast = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
