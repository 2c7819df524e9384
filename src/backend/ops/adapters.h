#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Operations of low-rank adapters (docs/design/lora.md). R = the adapter's rank.
namespace drover {

/// y = x / (1 − rate) where an element is kept and 0 where it is dropped, in fp32, rounded once. An element
/// is dropped if CounterRng(seed, t).uniform(leaf, its number) < rate. Numbers are those in the matrix of all
/// rows and all columns, so that forward and backward drop the same elements, on any layout over ranks.
struct DropElements {
    Tensor x;                       ///< [N,C], may be strided
    Tensor y;                       ///< [N,C], dtype of x, may be strided; may be x itself
    Tensor scalars;                 ///< [StepScalar::count] f32; t is read from it
    Tensor number_of_row{};         ///< [N] i32, optional: otherwise rows are numbered from 0
    std::int64_t first_row = 0;     ///< added to a row's number
    std::int64_t first_column = 0;  ///< of x in the matrix of all columns
    std::int64_t columns = 0;       ///< of that matrix
    double rate = 0;                ///< in [0, 1)
    std::uint64_t seed = 0;
    std::uint64_t leaf = 0;

    /// uniform < rate, for the lower 24 bits that uniform is made of.
    std::uint32_t dropped_below() const { return static_cast<std::uint32_t>(rate * 0x1p24); }

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// squares[o] = Σ over columns of (weight + scale · b · a)², from products = weight · aᵀ and gram = a · aᵀ:
/// the matrix itself is never made. Summed in fp32. Linear in weight², products and gram, so ranks that hold
/// different columns add up their results.
struct AdaptedSquares {
    Tensor weight;    ///< [O,K]
    Tensor b;         ///< [O,R], dtype of weight
    Tensor products;  ///< [O,R] f32
    Tensor gram;      ///< [R,R] f32, packed
    Tensor squares;   ///< [O] f32
    float scale = 1;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// factors = magnitudes / √squares
struct MagnitudeFactors {
    Tensor magnitudes;  ///< [O]
    Tensor squares;     ///< [O] f32
    Tensor factors;     ///< [O] f32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// y = x · factors (+ bias), column by column, in fp32, rounded once.
struct ScaleColumns {
    Tensor x;        ///< [N,C], may be strided
    Tensor y;        ///< [N,C], dtype of x, may be strided; may be x itself
    Tensor factors;  ///< [C] f32
    Tensor bias{};   ///< [C], optional, dtype of x or f32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dmagnitudes (+)= sum over rows of dy · (y − bias) / magnitudes, in fp32: what y depends on the magnitudes,
/// if it was made by ScaleColumns with MagnitudeFactors.
struct MagnitudeGradient {
    Tensor dy;           ///< [N,C], may be strided
    Tensor y;            ///< [N,C], dtype of dy, may be strided
    Tensor bias{};       ///< [C], optional, dtype of dy or f32
    Tensor magnitudes;   ///< [C], dtype of dy
    Tensor dmagnitudes;  ///< [C], dtype of dy or f32
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
