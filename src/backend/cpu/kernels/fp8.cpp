#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/maximum.h"
#include "backend/cpu/kernels/parallel.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// The FP8 numbers nearest to x, as f8's constructor makes them, in the low byte of each lane.
[[gnu::always_inline]] inline Words f8_bits(Floats x) {
    const Words word = bits_as<Words>(x), sign = (word >> 24) & 0x80u, magnitude = word & 0x7FFFFFFFu;
    const Floats size = bits_as<Floats>(magnitude);
    const Words normal = (magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u) - 0x3C000000u) >> 20;
    const Words subnormal = bits_as<Words>(size * 0x1p9f + 0x1p23f) - 0x4B000000u;
    Words bits = size < 0x1p-6f ? subnormal : normal;
    bits = size >= f8::largest ? Words{} + 0x7Eu : bits;
    bits = x == x ? bits : Words{} + 0x7Fu;
    return bits | sign;
}

/// Rows and columns of x that are transposed at a time.
constexpr std::int64_t square = 64;

}  // namespace

void absolute_maximum(const AbsoluteMaximum& op) {
    const std::int64_t width = op.x.size(1);
    auto* const maximum = static_cast<float*>(op.maximum.raw());
    with_type(op.x.dtype(), [&](auto t) {
        const auto* x = static_cast<const decltype(t)*>(op.x.raw());
        for_each_row(op.x.size(0), width,
                     [=, &op](std::int64_t row) { raise_to_row(maximum, x + row * op.x.stride(0), width); });
    });
}

void quantise(const Quantise& op) {
    const std::int64_t rows = op.x.size(0), width = op.x.size(1);
    const float given = *static_cast<const float*>(op.maximum.raw());
    const float maximum = given < smallest_maximum ? smallest_maximum : given;  // NaN stays
    const float factor = f8::largest / maximum;
    *static_cast<float*>(op.scale.raw()) = maximum / f8::largest;
    auto* const y = static_cast<std::uint8_t*>(op.y.raw());
    auto* const transposed = static_cast<std::uint8_t*>(op.transposed.raw());
    const std::int64_t padded = transposed ? op.transposed.size(1) : rows;
    with_type(op.x.dtype(), [&](auto t) {
        const auto* x = static_cast<const decltype(t)*>(op.x.raw());
        const std::int64_t stride = op.x.stride(0);
        for_each_range(width, square, [=](std::int64_t begin, std::int64_t end) {
            alignas(64) std::uint8_t bytes[square][square];
            for (std::int64_t first = 0; first < padded; first += square) {
                const std::int64_t last = first + square < padded ? first + square : padded;
                for (std::int64_t row = first; row < last; ++row) {
                    std::uint8_t* const to = bytes[row - first];
                    if (row >= rows) {
                        for (std::int64_t i = 0; i < end - begin; ++i) to[i] = 0;
                        continue;
                    }
                    const auto* const from = x + row * stride + begin;
                    for_each_vector(end - begin, [=](auto at) {
                        const Words bits = f8_bits(load(from, at) * factor);
                        const std::int64_t left = end - begin - at.begin, count = left < lanes ? left : lanes;
                        for (std::int64_t i = 0; i < count; ++i)
                            to[at.begin + i] = static_cast<std::uint8_t>(bits[i]);
                    });
                    if (y)
                        __builtin_memcpy(y + row * width + begin, to, static_cast<std::size_t>(end - begin));
                }
                if (!transposed) continue;
                for (std::int64_t column = begin; column < end; ++column) {
                    std::uint8_t* const to = transposed + column * padded + first;
                    for (std::int64_t row = 0; row < last - first; ++row)
                        to[row] = bytes[row][column - begin];
                }
            }
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
