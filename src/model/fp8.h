#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/ops/fp8.h"
#include "model/fp8_recipe.h"
#include "model/params.h"

namespace drover {

struct ModelConfig;

/// Error when a matrix of the model, on one of `ranks` of tensor parallelism, has a side that FP8 products do
/// not take.
void check_fp8(const ModelConfig& config, int ranks);

/// What a matrix' three products are made of.
enum class Fp8Operand : std::uint8_t { weight, input, gradient, count };

/// The scales of an operand, and of its transpose.
constexpr Fp8Scales fp8_scales(Fp8Recipe recipe, Fp8Operand operand) {
    if (recipe != Fp8Recipe::blockwise) return Fp8Scales::one;
    return operand == Fp8Operand::weight ? Fp8Scales::squares : Fp8Scales::rows;
}

/// The largest magnitudes and the scales of a block's tensors with one scale each, for one micro-batch: f32,
/// all maxima, then all scales, each of these at a multiple of 16 bytes, as cuBLASLt wants them.
struct Fp8Table {
    static constexpr std::int64_t matrices = static_cast<std::int64_t>(AdaptedMatrix::count);
    static constexpr std::int64_t tensors = matrices * static_cast<std::int64_t>(Fp8Operand::count);
    static constexpr std::int64_t scale_step = 16 / sizeof(float);
    static constexpr std::int64_t first_scale = (tensors + scale_step - 1) / scale_step * scale_step;
    static constexpr std::int64_t size = first_scale + tensors * scale_step;

    Tensor numbers{};  ///< [size]; absent: no such tensors

    explicit operator bool() const { return static_cast<bool>(numbers); }
    Tensor maxima() const { return numbers.rows(0, tensors); }
    /// Of all weights, which are adjacent.
    Tensor weight_maxima() const { return numbers.rows(0, matrices); }
    /// Absent without a table.
    Tensor maximum(AdaptedMatrix matrix, Fp8Operand operand) const {
        return numbers ? numbers.rows(index(matrix, operand), 1) : Tensor();
    }
    Tensor scale(AdaptedMatrix matrix, Fp8Operand operand) const {
        return numbers.rows(first_scale + index(matrix, operand) * scale_step, 1);
    }

  private:
    static std::int64_t index(AdaptedMatrix matrix, Fp8Operand operand) {
        return static_cast<std::int64_t>(operand) * matrices + static_cast<std::int64_t>(matrix);
    }
};

/// A matrix in FP8, or several one below the other.
struct Fp8Matrix {
    Tensor numbers;  ///< [rows,columns] f8
    Tensor scales;   ///< f32, of some Fp8Scales

    explicit operator bool() const { return static_cast<bool>(numbers); }
};

/// Room for one such matrix at a time.
struct Fp8Room {
    Tensor numbers;  ///< flat, f8
    Tensor scales;   ///< flat, f32; absent where matrices have one scale, which is in an Fp8Table

    explicit operator bool() const { return static_cast<bool>(numbers); }
    /// A matrix, or `groups` of them one below the other. Without the scale, if it is one.
    Fp8Matrix matrix(Fp8Scales kind, std::int64_t rows, std::int64_t columns, std::int64_t groups = 1) const;
};

/// Room for one matrix' FP8 tensors.
struct Fp8Scratch {
    Fp8Room input;     ///< a matrix' input, or its transpose
    Fp8Room weight;    ///< a weight, or its transpose
    Fp8Room gradient;  ///< the gradient of a matrix' output
    Fp8Room transposed_gradient;
};

/// A block's frozen weights in FP8, made once. Their transposes, which the gradients of inputs take, are made
/// of these numbers in Fp8Scratch::weight, for each product.
struct Fp8Copies {
    template <class Of>
    using OfMatrices = std::array<Of, static_cast<std::size_t>(AdaptedMatrix::count)>;

    Fp8Table table;                 ///< has the maxima and scales of weights with one scale each
    OfMatrices<Fp8Matrix> weights;  ///< [out,in]; absent: the matrix is trained
    /// Of the transposes: [in,out], of experts one expert after the other.
    OfMatrices<Tensor> transposed_scales;

    bool any() const { return std::ranges::any_of(weights, &Fp8Matrix::operator bool); }
    bool has(AdaptedMatrix matrix) const {
        return static_cast<bool>(weights[static_cast<std::size_t>(matrix)]);
    }
    const Fp8Matrix& weight(AdaptedMatrix matrix) const { return weights[static_cast<std::size_t>(matrix)]; }
    const Tensor& scales_of_transpose(AdaptedMatrix matrix) const {
        return transposed_scales[static_cast<std::size_t>(matrix)];
    }
};

/// Rows of a micro-batch, filled up with zeros, that weight gradients are summed over.
constexpr std::int64_t fp8_rows(std::int64_t tokens, Fp8Recipe recipe) {
    const std::int64_t step = recipe == Fp8Recipe::blockwise ? fp8_block : 16;
    return (tokens + step - 1) / step * step;
}

}  // namespace drover
