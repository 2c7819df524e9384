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

/// A matrix to be quantised.
template <class T>
struct QuantisedPart {
    const T* x;
    std::int64_t rows, width, stride;
    std::uint8_t* y;             ///< packed; may be null
    std::uint8_t* transposed;    ///< [width,padded]; may be null
    std::int64_t padded, pitch;  ///< of the transpose: its columns, and those from row to row
};

template <class T>
void quantise_part(const QuantisedPart<T>& part, float factor) {
    const std::int64_t padded = part.transposed ? part.padded : part.rows;
    for_each_range(part.width, square, [=](std::int64_t begin, std::int64_t end) {
        alignas(64) std::uint8_t bytes[square][square];
        for (std::int64_t first = 0; first < padded; first += square) {
            const std::int64_t last = first + square < padded ? first + square : padded;
            for (std::int64_t row = first; row < last; ++row) {
                std::uint8_t* const to = bytes[row - first];
                if (row >= part.rows) {
                    for (std::int64_t i = 0; i < end - begin; ++i) to[i] = 0;
                    continue;
                }
                const T* const from = part.x + row * part.stride + begin;
                for_each_vector(end - begin, [=](auto at) {
                    const Words bits = f8_bits(load(from, at) * factor);
                    const std::int64_t left = end - begin - at.begin, count = left < lanes ? left : lanes;
                    for (std::int64_t i = 0; i < count; ++i)
                        to[at.begin + i] = static_cast<std::uint8_t>(bits[i]);
                });
                if (part.y)
                    __builtin_memcpy(part.y + row * part.width + begin, to,
                                     static_cast<std::size_t>(end - begin));
            }
            if (!part.transposed) continue;
            for (std::int64_t column = begin; column < end; ++column) {
                std::uint8_t* const to = part.transposed + column * part.pitch + first;
                for (std::int64_t row = 0; row < last - first; ++row) to[row] = bytes[row][column - begin];
            }
        }
    });
}

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
    const float given = *static_cast<const float*>(op.maximum.raw());
    const float maximum = given < smallest_maximum ? smallest_maximum : given;  // NaN stays
    const float factor = f8::largest / maximum;
    *static_cast<float*>(op.scale.raw()) = maximum / f8::largest;
    with_type(op.x.dtype(), [&](auto t) {
        using T = decltype(t);
        const std::int64_t width = op.x.size(1), height = op.x.size(0) / op.groups;
        QuantisedPart<T> part{.x = static_cast<const T*>(op.x.raw()),
                              .rows = height,
                              .width = width,
                              .stride = op.x.stride(0),
                              .y = static_cast<std::uint8_t*>(op.y.raw()),
                              .transposed = static_cast<std::uint8_t*>(op.transposed.raw()),
                              .padded = op.transposed ? op.transposed.size(1) : height,
                              .pitch = op.transposed ? op.transposed.size(1) : height};
        const auto advance = [&](std::int64_t transposed) {
            part.x += part.rows * part.stride;
            if (part.y) part.y += part.rows * width;
            if (part.transposed) part.transposed += transposed;
        };
        if (!op.offsets) {
            for (std::int64_t group = 0; group < op.groups; ++group, advance(width * height))
                quantise_part(part, factor);
            return;
        }
        const auto* const offsets = static_cast<const std::int32_t*>(op.offsets.raw());
        for (std::int64_t e = 0; e + 1 < op.offsets.size(0); ++e, advance(part.padded)) {
            part.rows = offsets[e + 1] - offsets[e];
            part.padded = expert_columns(part.rows, 1);
            quantise_part(part, factor);
        }
    });
}

}  // namespace drover::cpu::DROVER_ISA
