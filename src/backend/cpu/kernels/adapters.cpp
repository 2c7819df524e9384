#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/column_sums.h"
#include "backend/cpu/kernels/leaf_update.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// Calls body(T{}, U{}) with the types of two operands, of which the second may be absent.
template <class Body>
void with_types(const Tensor& first, const Tensor& second, const Body& body) {
    with_type(first.dtype(), [&](auto t) {
        if (second)
            with_type(second.dtype(), [&](auto u) { body(t, u); });
        else
            body(t, float{});
    });
}

/// gram · b for one row, times b: bᵀ · gram · b.
template <class T>
float quadratic_form(const float* gram, const T* b, std::int64_t rank) {
    Floats sum = {};
    for (std::int64_t i = 0; i < rank; ++i) {
        const float factor = load_one(b, i);
        const float* row = gram + i * rank;
        for_each_vector(rank, [&](auto at) { sum += factor * (load(row, at) * load(b, at)); });
    }
    return sum_of_lanes(sum);
}

}  // namespace

void drop_elements(const DropElements& op) {
    const std::int64_t width = op.x.size(1);
    const float step = static_cast<const float*>(op.scalars.raw())[StepScalar::step];
    const LeafNoise noise({.seed = op.seed}, {.leaf = op.leaf, .columns = op.columns}, op.x, step);
    const auto* numbers = static_cast<const std::int32_t*>(op.number_of_row.raw());
    const auto below = static_cast<std::int32_t>(op.dropped_below());
    const auto factor = static_cast<float>(1 / (1 - op.rate));
    with_type(op.x.dtype(), [&](auto t) {
        const auto* x = static_cast<const decltype(t)*>(op.x.raw());
        auto* y = static_cast<decltype(t)*>(op.y.raw());
        for_each_row(op.x.size(0), width, [&](std::int64_t row) {
            const std::int64_t number = op.first_row + (numbers ? numbers[row] : row);
            const std::int64_t first = number * op.columns + op.first_column;
            alignas(64) LeafNoise::Room room;
            for (std::int64_t begin = 0; begin < width; begin += LeafNoise::most) {
                const std::int64_t left = width - begin,
                                   count = left < LeafNoise::most ? left : LeafNoise::most;
                const std::uint32_t* words =
                    noise.words_from(static_cast<std::uint64_t>(first + begin), count, room);
                const auto* from = x + row * op.x.stride(0) + begin;
                auto* to = y + row * op.y.stride(0) + begin;
                for_each_vector(count, [=](auto at) {
                    Words bits;
                    __builtin_memcpy(&bits, words + at.begin, sizeof bits);
                    const Ints units = bits_as<Ints>(bits & 0xFFFFFFu);
                    const Floats kept = load(from, at) * factor;
                    store(to, at, units >= below ? kept : Floats{});
                });
            }
        });
    });
}

void adapted_squares(const AdaptedSquares& op) {
    const std::int64_t width = op.weight.size(1), rank = op.b.size(1);
    const auto* gram = static_cast<const float*>(op.gram.raw());
    auto* squares = static_cast<float*>(op.squares.raw());
    with_type(op.weight.dtype(), [&](auto t) {
        const auto* weight = static_cast<const decltype(t)*>(op.weight.raw());
        const auto* b = static_cast<const decltype(t)*>(op.b.raw());
        const auto* products = static_cast<const float*>(op.products.raw());
        for_each_row(op.weight.size(0), width, [&](std::int64_t row) {
            const auto* w = weight + row * op.weight.stride(0);
            const auto* own_b = b + row * op.b.stride(0);
            const float* own_products = products + row * op.products.stride(0);
            Floats sum = {}, crossed = {};
            for_each_vector(width, [&](auto at) { sum += load(w, at) * load(w, at); });
            for_each_vector(rank, [&](auto at) { crossed += load(own_b, at) * load(own_products, at); });
            squares[row] = sum_of_lanes(sum) + 2.0f * op.scale * sum_of_lanes(crossed) +
                           op.scale * op.scale * quadratic_form(gram, own_b, rank);
        });
    });
}

void magnitude_factors(const MagnitudeFactors& op) {
    const auto* squares = static_cast<const float*>(op.squares.raw());
    auto* factors = static_cast<float*>(op.factors.raw());
    with_type(op.magnitudes.dtype(), [&](auto t) {
        const auto* magnitudes = static_cast<const decltype(t)*>(op.magnitudes.raw());
        for_each_vector(op.magnitudes.size(0), [=](auto at) {
            store(factors, at, load(magnitudes, at) / square_root(load(squares, at)));
        });
    });
}

void scale_columns(const ScaleColumns& op) {
    const std::int64_t width = op.x.size(1);
    const auto* factors = static_cast<const float*>(op.factors.raw());
    with_types(op.x, op.bias, [&](auto t, auto u) {
        const auto* x = static_cast<const decltype(t)*>(op.x.raw());
        const auto* bias = static_cast<const decltype(u)*>(op.bias.raw());
        auto* y = static_cast<decltype(t)*>(op.y.raw());
        for_each_row(op.x.size(0), width, [&](std::int64_t row) {
            const auto* from = x + row * op.x.stride(0);
            auto* to = y + row * op.y.stride(0);
            for_each_vector(width, [&](auto at) {
                const Floats scaled = load(from, at) * load(factors, at);
                store(to, at, bias ? scaled + load(bias, at) : scaled);
            });
        });
    });
}

void magnitude_gradient(const MagnitudeGradient& op) {
    with_types(op.dy, op.bias, [&](auto t, auto u) {
        const auto* dy = static_cast<const decltype(t)*>(op.dy.raw());
        const auto* y = static_cast<const decltype(t)*>(op.y.raw());
        const auto* bias = static_cast<const decltype(u)*>(op.bias.raw());
        const auto* magnitudes = static_cast<const decltype(t)*>(op.magnitudes.raw());
        const std::int64_t dy_stride = op.dy.stride(0), y_stride = op.y.stride(0);
        with_type(op.dmagnitudes.dtype(), [&](auto d) {
            sum_columns(op.dy.size(0), op.dy.size(1), static_cast<decltype(d)*>(op.dmagnitudes.raw()),
                        op.accumulate,
                        [=](std::int64_t row, std::int64_t first, std::int64_t count, float* sums) {
                            const auto* d_here = dy + row * dy_stride + first;
                            const auto* y_here = y + row * y_stride + first;
                            for_each_vector(count, [=](auto at) {
                                Floats product = load(y_here, at);
                                if (bias) product -= load(bias + first, at);
                                product *= load(d_here, at);
                                // A part of a vector has zeros after its end.
                                const Floats lengths = load(magnitudes + first, at);
                                product = lengths == 0.0f ? Floats{} : product / lengths;
                                store(sums, at, load(sums, at) + product);
                            });
                        });
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
