#pragma once

#include "backend/ops/experts.h"
#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Products of FP8 matrices, and how their operands are made (docs/design/fp8.md).
///
/// A tensor x is kept as FP8 numbers y and one scale: x ≈ scale · y with scale = max|x| / 448, so the largest
/// element just fits. A maximum does not depend on the order in which it is found. Or each block of numbers
/// has a scale of its own, which is a power of two.
namespace drover {

/// Which numbers of an FP8 matrix have a scale in common, and the shape of the scales.
enum class Fp8Scales : std::uint8_t {
    one,      ///< all: [1]
    rows,     ///< 128 neighbours in a row: [⌈columns / 128⌉,rows]
    squares,  ///< 128 × 128: [⌈rows / 128⌉,⌈columns / 128⌉ filled up to a multiple of 4]
};

/// Numbers on the side of a block that has one scale.
inline constexpr std::int64_t fp8_block = 128;

/// Of a matrix with these sides, or of `groups` matrices that have so many rows together.
Shape shape_of_scales(Fp8Scales scales, std::int64_t rows, std::int64_t columns, std::int64_t groups = 1);

/// Rows of a product's first operand, for a result of `rows`. What fills them up may be anything.
constexpr std::int64_t rows_of_operand(Fp8Scales scales, std::int64_t rows) {
    return scales == Fp8Scales::rows ? (rows + 3) / 4 * 4 : rows;
}

/// maximum = max(maximum, |x|) over all elements; NaN if one is NaN.
struct AbsoluteMaximum {
    Tensor x;        ///< [R,C], may be strided
    Tensor maximum;  ///< [1] f32, never negative

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// scale = m / 448 and y = x · (448 / m), in fp32, rounded once, with m = max(maximum, 2⁻¹⁰⁰): zeros stay
/// zeros. If the maximum is infinite or NaN, elements become NaN.
///
/// With several `groups`, x is that many matrices one below the other, and each is transposed in itself. With
/// `offsets`, x's rows are sorted by expert, and the transpose of each expert's rows begins at a multiple of
/// expert_alignment: GroupedFp8Gemm sums over them.
struct Quantise {
    Tensor x;             ///< [R,C], may be strided
    Tensor maximum;       ///< [1] f32: of x, or larger
    Tensor y{};           ///< [R,C] f8, packed, optional
    Tensor transposed{};  ///< f8, packed, optional: [C,P], P ≥ R a multiple of 16: yᵀ, then zeros;
                          ///< [groups·C,R / groups], R / groups a multiple of 16; or, with offsets,
                          ///< [C,expert_columns(R,E)]: an expert's columns, zeros up to the next expert's,
                          ///< and after the last expert's what was there
    Tensor scale;  ///< [1] f32
    std::int64_t groups = 1;
    Tensor offsets{};  ///< [E + 1] i32, optional

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// The least that Quantise and QuantiseBlocks take for the largest magnitude.
inline constexpr float smallest_maximum = 0x1p-100f;

/// Columns of the transpose that an expert's rows are filled up to a multiple of.
inline constexpr std::int64_t expert_alignment = 128;

/// Columns that are enough for the transpose of `rows` rows, however they are spread over the experts.
constexpr std::int64_t expert_columns(std::int64_t rows, std::int64_t experts) {
    return (rows + experts * (expert_alignment - 1)) / expert_alignment * expert_alignment;
}

/// Each block of 128 numbers in a row, or of 128 × 128 in a matrix, with its own scale: m / 448 rounded up to
/// a power of two, with m = max(|x| of the block, 2⁻¹⁰⁰). y = x / scale, rounded once, is never beyond 448.
/// The numbers of a block with one that is infinite or NaN become NaN.
///
/// Blocks begin at the first element, and those at the end may be smaller. The transpose of squares has the
/// same numbers as y. That of rows has blocks of its own, down x's columns, and is quantised from x, too.
/// `groups` and `offsets` as in Quantise: no block has elements of two groups or experts.
struct QuantiseBlocks {
    Tensor x;                    ///< [R,C], C a multiple of 16; rows may be strided, by multiples of 8
    Fp8Scales blocks;            ///< not `one`
    Tensor y{};                  ///< f8, packed, optional: [rows_of_operand(blocks, R),C]; what follows x's
                                 ///< rows, and their scales, stays as it was
    Tensor scales{};             ///< f32, packed: of y
    Tensor transposed{};         ///< f8, packed, optional: as in Quantise; of squares, not filled up
    Tensor transposed_scales{};  ///< f32, packed: of the transpose, as of y
    std::int64_t groups = 1;     ///< with several, blocks are squares
    Tensor offsets{};            ///< [E + 1] i32, optional; with them, blocks are rows

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// y = xᵀ, number by number, as a scale for all of them, or for squares, allows. Both packed. With several
/// `groups`, x is that many matrices one below the other, and each is transposed in itself.
struct Fp8Transpose {
    Tensor x;  ///< [R,C] f8; C and R / groups are multiples of 16
    Tensor y;  ///< [groups·C,R / groups] f8
    std::int64_t groups = 1;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// c = scale_a · scale_b · (a · bᵀ) (+ bias) (+ c if accumulate); products are summed in fp32, or, where
/// `fast`, in what a GPU's matrix unit has: about 13 bits of mantissa.
///
/// Where blocks have scales, each sum of 128 products is multiplied by its own two. They are powers of two.
struct Fp8Gemm {
    Tensor a;                 ///< [rows_of_operand(scales_a, M),K] f8, packed; K a multiple of 16
    Tensor b;                 ///< [N,K] f8, packed; N a multiple of 16
    Tensor c;                 ///< [M,N], a dtype of activations
    Tensor scale_a, scale_b;  ///< f32, packed, at multiples of 16 bytes; of the shape that their kind has
    Tensor bias{};            ///< [N], optional, dtype of c or f32
    bool accumulate = false;
    bool fast = false;                    ///< not with scales of blocks
    Fp8Scales scales_a = Fp8Scales::one;  ///< not `squares`
    Fp8Scales scales_b = Fp8Scales::one;  ///< `one` if those of a are, and otherwise not

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// GroupedGemm with FP8 operands, each contiguous in what is summed over: c = scale_a · scale_b · (a · bᵀ)
/// (+ c if accumulate), one product per expert over its rows. Sums are those of Fp8Gemm, but without `fast` a
/// GPU may still sum up 128 products at a time like that.
struct GroupedFp8Gemm {
    using Use = GroupedGemm::Use;
    Use use = Use::forward;
    Tensor a;  ///< f8, packed; forward: x [M,K]; data gradient: dy [M,O]; weight gradient: dyᵀ [O,P].
               ///< M is filled up as in Fp8Gemm
    Tensor b;  ///< f8, packed; forward: weights [E·O,K]; data gradient: their transposes [E·K,O]; weight
               ///< gradient: xᵀ [K,P], P = expert_columns(M,E), as Quantise makes it with offsets
    Tensor c;  ///< a dtype of activations; forward: y [M,O]; data gradient: dx [M,K]; weight gradient:
               ///< dweights [E·O,K]. K and O are multiples of 16
    Tensor scale_a, scale_b;  ///< as Fp8Gemm's
    Tensor offsets;           ///< [E + 1] i32
    bool accumulate = false;
    bool fast = false;
    Fp8Scales scales_a = Fp8Scales::one;
    Fp8Scales scales_b = Fp8Scales::one;  ///< of weights in blocks, `squares`

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
