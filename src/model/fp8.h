#pragma once

#include <cstdint>
#include <string_view>

#include "model/params.h"

namespace drover {

/// How the products of the blocks' matrices are computed (docs/design/fp8.md).
enum class Fp8Recipe : std::uint8_t {
    none,        ///< in the weights' own format
    tensorwise,  ///< operands in FP8, with one scale for each tensor, made of its present maximum
};

/// "none" or "tensorwise"; Error naming `what` otherwise.
Fp8Recipe fp8_recipe_from_name(std::string_view name, std::string_view what);

struct ModelConfig;

/// Error when a matrix of the model, on one of `ranks` of tensor parallelism, has a side that FP8 products do
/// not take.
void check_fp8(const ModelConfig& config, int ranks);

/// What a matrix' three products are made of.
enum class Fp8Operand : std::uint8_t { weight, input, gradient, count };

/// The largest magnitudes and the scales of a block's FP8 tensors, for one micro-batch: f32, all maxima, then
/// all scales, each of these at a multiple of 16 bytes, as cuBLASLt wants them.
struct Fp8Table {
    static constexpr std::int64_t matrices = static_cast<std::int64_t>(AdaptedMatrix::count);
    static constexpr std::int64_t tensors = matrices * static_cast<std::int64_t>(Fp8Operand::count);
    static constexpr std::int64_t scale_step = 16 / sizeof(float);
    static constexpr std::int64_t first_scale = (tensors + scale_step - 1) / scale_step * scale_step;
    static constexpr std::int64_t size = first_scale + tensors * scale_step;

    Tensor numbers{};  ///< [size]; absent: no FP8

    explicit operator bool() const { return static_cast<bool>(numbers); }
    Tensor maxima() const { return numbers.rows(0, tensors); }
    /// Of all weights, which are adjacent.
    Tensor weight_maxima() const { return numbers.rows(0, matrices); }
    /// Absent without FP8.
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

/// Room for one matrix' FP8 tensors, flat f8.
struct Fp8Scratch {
    Tensor input;     ///< a matrix' input, or its transpose
    Tensor weight;    ///< a weight, or its transpose
    Tensor gradient;  ///< the gradient of a matrix' output
    Tensor transposed_gradient;

    /// A matrix in such a room.
    static Tensor matrix(const Tensor& room, std::int64_t rows, std::int64_t columns) {
        return room.rows(0, rows * columns).view({rows, columns});
    }
};

/// A block's frozen weights in FP8, made once, both ways round.
struct Fp8Copies {
    using OfMatrices = std::array<Tensor, static_cast<std::size_t>(AdaptedMatrix::count)>;

    Fp8Table table;         ///< of whose maxima and scales those of weights are used
    OfMatrices weights;     ///< [out,in] f8; absent: the matrix is trained
    OfMatrices transposed;  ///< [in,out] f8; of experts, one expert after the other

    bool has(AdaptedMatrix matrix) const {
        return static_cast<bool>(weights[static_cast<std::size_t>(matrix)]);
    }
    const Tensor& weight(AdaptedMatrix matrix) const { return weights[static_cast<std::size_t>(matrix)]; }
    const Tensor& transpose(AdaptedMatrix matrix) const {
        return transposed[static_cast<std::size_t>(matrix)];
    }
};

/// Rows of a micro-batch, filled up with zeros, that weight gradients are summed over.
constexpr std::int64_t fp8_rows(std::int64_t tokens) {
    return (tokens + 15) / 16 * 16;
}

}  // namespace drover
