#include "backend/cpu/fp8_gemm.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace drover::cpu {
namespace {

std::array<bf16, 256> make_table() {
    std::array<bf16, 256> table{};
    for (unsigned i = 0; i < 256; ++i) {
        f8 number;
        number.bits = static_cast<std::uint8_t>(i);
        table[i] = bf16(static_cast<float>(number));
    }
    return table;
}

/// Rows of an FP8 matrix as bf16. Numbers of blocks are multiplied by their scales, which are powers of two,
/// so the results are bf16 numbers, too.
Tensor widened(const Tensor& rows, Fp8Scales kind, const Tensor& scales, std::vector<bf16>& room) {
    static const std::array<bf16, 256> table = make_table();
    const std::int64_t count = rows.numel(), width = rows.size(1);
    room.resize(std::max(room.size(), static_cast<std::size_t>(count)));
    const auto scale_of = [&](std::int64_t row, std::int64_t block) {
        const bool by_rows = kind == Fp8Scales::rows;
        return *(static_cast<const float*>(scales.raw()) +
                 (by_rows ? block * scales.stride(0) + row : row / fp8_block * scales.stride(0) + block));
    };
#pragma omp parallel for if (count > 1 << 16)
    for (std::int64_t row = 0; row < rows.size(0); ++row) {
        const auto* from = static_cast<const std::uint8_t*>(rows.raw()) + row * rows.stride(0);
        bf16* to = room.data() + row * width;
        if (kind == Fp8Scales::one) {
            for (std::int64_t i = 0; i < width; ++i) to[i] = table[from[i]];
            continue;
        }
        for (std::int64_t first = 0; first < width; first += fp8_block) {
            const float scale = scale_of(row, first / fp8_block);
            for (std::int64_t i = first; i < std::min(first + fp8_block, width); ++i)
                to[i] = bf16(static_cast<float>(table[from[i]]) * scale);
        }
    }
    return Tensor(room.data(), DType::bf16, rows.shape(), Device::cpu);
}

float element(const Tensor& vector, std::int64_t i) {
    if (vector.dtype() == DType::f32) return static_cast<const float*>(vector.raw())[i];
    return static_cast<float>(static_cast<const bf16*>(vector.raw())[i]);
}

/// c = scale · sums (+ bias) (+ c), rounded once.
template <class T>
void finish(const Tensor& sums, float scale, const Fp8Gemm& op, const Tensor& c) {
    const std::int64_t columns = c.size(1);
#pragma omp parallel for if (c.numel() > 1 << 16)
    for (std::int64_t row = 0; row < c.size(0); ++row) {
        const float* from = static_cast<const float*>(sums.raw()) + row * columns;
        T* to = static_cast<T*>(c.raw()) + row * c.stride(0);
        for (std::int64_t i = 0; i < columns; ++i) {
            float value = from[i] * scale;
            if (op.bias) value += element(op.bias, i);
            if (op.accumulate) value += static_cast<float>(to[i]);
            to[i] = T(value);
        }
    }
}

}  // namespace

void Fp8GemmEngine::run(const Fp8Gemm& op, const std::function<void(const Gemm&)>& multiply) {
    if (op.c.numel() == 0) return;
    const bool in_blocks = op.scales_a != Fp8Scales::one;
    const float scale = in_blocks ? 1
                                  : *static_cast<const float*>(op.scale_a.raw()) *
                                        *static_cast<const float*>(op.scale_b.raw());
    const Tensor b = widened(op.b, op.scales_b, op.scale_b, b_);
    // Pieces of a fixed size keep the copies small.
    constexpr std::int64_t piece = 512;
    for (std::int64_t row = 0; row < op.c.size(0); row += piece) {
        const std::int64_t rows = std::min(piece, op.c.size(0) - row);
        const Tensor of_a = in_blocks ? op.scale_a.columns(row, rows) : Tensor();
        const Tensor a = widened(op.a.rows(row, rows), op.scales_a, of_a, a_), c = op.c.rows(row, rows);
        sums_.resize(std::max(sums_.size(), static_cast<std::size_t>(c.numel())));
        const Tensor sums(sums_.data(), DType::f32, {rows, c.size(1)}, Device::cpu);
        if (a.size(1) > 0)
            multiply(Gemm::forward(a, b, sums));
        else
            std::fill_n(sums_.begin(), sums.numel(), 0.0f);
        if (c.dtype() == DType::f32)
            finish<float>(sums, scale, op, c);
        else
            finish<bf16>(sums, scale, op, c);
    }
}

void Fp8GemmEngine::run(const GroupedFp8Gemm& op, const std::function<void(const Gemm&)>& multiply) {
    const std::int32_t* offsets = op.offsets.data<std::int32_t>();
    const std::int64_t experts = op.offsets.size(0) - 1;
    Fp8Gemm product{.scale_a = op.scale_a,
                    .scale_b = op.scale_b,
                    .accumulate = op.accumulate,
                    .scales_a = op.scales_a,
                    .scales_b = op.scales_b};
    const bool in_blocks = op.scales_a != Fp8Scales::one;
    const auto matrix = [&](const Tensor& stacked, std::int64_t expert) {
        const std::int64_t height = stacked.size(0) / experts;
        return stacked.rows(expert * height, height);
    };
    std::int64_t first_column = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t begin = offsets[e], count = offsets[e + 1] - begin;
        if (op.use == GroupedFp8Gemm::Use::weight_gradient) {
            const std::int64_t columns = expert_columns(count, 1);
            product.a = op.a.columns(first_column, columns);
            product.b = op.b.columns(first_column, columns);
            product.c = matrix(op.c, e);
            if (in_blocks) {
                const std::int64_t first = first_column / fp8_block, blocks = columns / fp8_block;
                product.scale_a = op.scale_a.rows(first, blocks);
                product.scale_b = op.scale_b.rows(first, blocks);
            }
            first_column += columns;
        } else {
            product.a = op.a.rows(begin, count);
            product.b = matrix(op.b, e);
            product.c = op.c.rows(begin, count);
            if (in_blocks) {
                product.scale_a = op.scale_a.columns(begin, count);
                product.scale_b = matrix(op.scale_b, e);
            }
        }
        run(product, multiply);
    }
}

}  // namespace drover::cpu
