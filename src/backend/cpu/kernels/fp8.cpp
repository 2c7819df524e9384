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

    /// The part of the first operand that is this large.
    template <class Operation>
    static QuantisedPart first_of(const Operation& op) {
        const std::int64_t height = op.x.size(0) / op.groups;
        return {.x = static_cast<const T*>(op.x.raw()),
                .rows = height,
                .width = op.x.size(1),
                .stride = op.x.stride(0),
                .y = static_cast<std::uint8_t*>(op.y.raw()),
                .transposed = static_cast<std::uint8_t*>(op.transposed.raw()),
                .padded = op.transposed ? op.transposed.size(1) : height,
                .pitch = op.transposed ? op.transposed.size(1) : height};
    }
    /// To the next part, whose transpose begins this much later.
    void advance(std::int64_t transpose) {
        x += rows * stride;
        if (y) y += rows * width;
        if (transposed) transposed += transpose;
    }
};

/// Calls use(QuantisedPart) for every group, or the rows of every expert.
template <class T, class Operation, class Use>
void for_each_part(const Operation& op, const Use& use) {
    QuantisedPart<T> part = QuantisedPart<T>::first_of(op);
    if (!op.offsets) {
        for (std::int64_t group = 0; group < op.groups; ++group, part.advance(part.width * part.rows))
            use(part);
        return;
    }
    const auto* const offsets = static_cast<const std::int32_t*>(op.offsets.raw());
    for (std::int64_t e = 0; e + 1 < op.offsets.size(0); ++e, part.advance(part.padded)) {
        part.rows = offsets[e + 1] - offsets[e];
        part.padded = expert_columns(part.rows, 1);
        use(part);
    }
}

/// A row's numbers, times factor(where), as FP8.
template <class T, class Factor>
[[gnu::always_inline]] inline void quantise_row(std::uint8_t* to, const T* from, std::int64_t width,
                                                const Factor& factor) {
    for_each_vector(width, [&](auto at) {
        const Words bits = f8_bits(load(from, at) * factor(at));
        const std::int64_t left = width - at.begin, count = left < lanes ? left : lanes;
        for (std::int64_t i = 0; i < count; ++i) to[at.begin + i] = static_cast<std::uint8_t>(bits[i]);
    });
}

/// Rows first … last − 1 of columns begin … end − 1, in `bytes`, become columns of the transpose.
template <class T, std::int64_t side>
void put_transposed(const QuantisedPart<T>& part, const std::uint8_t (&bytes)[side][side], std::int64_t begin,
                    std::int64_t end, std::int64_t first, std::int64_t last) {
    for (std::int64_t column = begin; column < end; ++column) {
        std::uint8_t* const to = part.transposed + column * part.pitch + first;
        for (std::int64_t row = 0; row < last - first; ++row) to[row] = bytes[row][column - begin];
    }
}

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
                quantise_row(to, part.x + row * part.stride + begin, end - begin,
                             [=](auto) { return splat(factor); });
                if (part.y)
                    __builtin_memcpy(part.y + row * part.width + begin, to,
                                     static_cast<std::size_t>(end - begin));
            }
            if (part.transposed) put_transposed(part, bytes, begin, end, first, last);
        }
    });
}

/// The scales of blocks, and what their numbers are multiplied by.
struct BlockFactors {
    Floats factor, scale;

    /// Of blocks whose largest magnitudes have these bits.
    [[gnu::always_inline]] explicit BlockFactors(Ints most) {
        const Ints least = bits_as<Ints>(splat(smallest_maximum)), infinite = bits_as<Ints>(splat(infinity));
        most = most > least ? most : least;
        // 448 is 1.75 · 2⁸, so m / 448 has the exponent of m less 8, and rounds up to the next power of two
        // where m's mantissa is beyond 1.75.
        const Words exponent = (bits_as<Words>(most) + 0x1FFFFFu) >> 23;
        scale = bits_as<Floats>((exponent - 8u) << 23);
        factor = bits_as<Floats>((262u - exponent) << 23);
        factor = most < infinite ? factor : splat(not_a_number);
    }

  private:
    static constexpr float infinity = __builtin_inff(), not_a_number = __builtin_nanf("");
};

/// Where the scales of an FP8 matrix lie.
struct BlockScales {
    float* first;
    std::int64_t pitch;

    explicit BlockScales(const Tensor& scales)
        : first(static_cast<float*>(scales.raw())), pitch(scales ? scales.size(1) : 0) {}
    /// To those of the next part.
    void advance(std::int64_t scales) {
        if (first) first += scales;
    }
};

/// Each row of 128 numbers to y, and each column to the transpose.
template <class T>
void quantise_part_by_rows(const QuantisedPart<T>& part, const BlockScales& scales,
                           const BlockScales& transposed_scales) {
    const std::int64_t padded = part.transposed ? part.padded : part.rows;
    for_each_range(part.width, fp8_block, [=](std::int64_t begin, std::int64_t end) {
        alignas(64) std::uint8_t bytes[fp8_block][fp8_block];
        alignas(64) std::int32_t most[fp8_block];
        const std::int64_t width = end - begin;
        for (std::int64_t first = 0; first < padded; first += fp8_block) {
            const std::int64_t last = first + fp8_block < padded ? first + fp8_block : padded,
                               present = last < part.rows ? last : part.rows;
            const T* const from = part.x + begin;
            __builtin_memset(bytes, 0, sizeof(bytes));
            __builtin_memset(most, 0, sizeof(most));
            for (std::int64_t row = first; row < present; ++row) {
                const T* const numbers = from + row * part.stride;
                for_each_vector(width, [&](auto at) {
                    const Ints bits = magnitude_bits(load(numbers, at));
                    const std::int64_t left = width - at.begin, count = left < lanes ? left : lanes;
                    for (std::int64_t i = 0; i < count; ++i)
                        most[at.begin + i] = bits[i] > most[at.begin + i] ? bits[i] : most[at.begin + i];
                });
                if (!part.y) continue;
                const BlockFactors of_row(Ints{} + largest_bits(numbers, width));
                quantise_row(part.y + row * part.width + begin, numbers, width,
                             [=](auto) { return of_row.factor; });
                scales.first[begin / fp8_block * scales.pitch + row] = of_row.scale[0];
            }
            if (!part.transposed) continue;
            const auto of_columns = [&](std::int64_t column) {
                Ints bits;
                __builtin_memcpy(&bits, most + column, sizeof(bits));
                return BlockFactors(bits);
            };
            for (std::int64_t row = first; row < present; ++row)
                quantise_row(bytes[row - first], from + row * part.stride, width,
                             [&](auto at) { return of_columns(at.begin).factor; });
            put_transposed(part, bytes, begin, end, first, last);
            for (std::int64_t column = 0; column < width; ++column)
                transposed_scales.first[first / fp8_block * transposed_scales.pitch + begin + column] =
                    of_columns(column / lanes * lanes).scale[column % lanes];
        }
    });
}

/// Each square of 128 × 128 numbers to both.
template <class T>
void quantise_part_by_squares(const QuantisedPart<T>& part, const BlockScales& scales,
                              const BlockScales& transposed_scales) {
    for_each_range(part.width, fp8_block, [=](std::int64_t begin, std::int64_t end) {
        alignas(64) std::uint8_t bytes[fp8_block][fp8_block];
        const std::int64_t width = end - begin, across = begin / fp8_block;
        for (std::int64_t first = 0; first < part.rows; first += fp8_block) {
            const std::int64_t last = first + fp8_block < part.rows ? first + fp8_block : part.rows,
                               down = first / fp8_block;
            std::int32_t most = 0;
            for (std::int64_t row = first; row < last; ++row) {
                const std::int32_t of_row = largest_bits(part.x + row * part.stride + begin, width);
                most = of_row > most ? of_row : most;
            }
            const BlockFactors of_square(Ints{} + most);
            for (std::int64_t row = first; row < last; ++row) {
                quantise_row(bytes[row - first], part.x + row * part.stride + begin, width,
                             [=](auto) { return of_square.factor; });
                if (part.y)
                    __builtin_memcpy(part.y + row * part.width + begin, bytes[row - first],
                                     static_cast<std::size_t>(width));
            }
            if (part.y) scales.first[down * scales.pitch + across] = of_square.scale[0];
            if (!part.transposed) continue;
            put_transposed(part, bytes, begin, end, first, last);
            transposed_scales.first[across * transposed_scales.pitch + down] = of_square.scale[0];
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
        for_each_part<decltype(t)>(op, [=](const auto& part) { quantise_part(part, factor); });
    });
}

void fp8_transpose(const Fp8Transpose& op) {
    const std::int64_t rows = op.x.size(0) / op.groups, width = op.x.size(1), size = rows * width;
    const auto* const x = static_cast<const std::uint8_t*>(op.x.raw());
    auto* const y = static_cast<std::uint8_t*>(op.y.raw());
    for_each_range(op.groups * width, square, [=](std::int64_t begin, std::int64_t end) {
        // Squares, so that lines of both matrices are used while they are in the cache.
        for (std::int64_t first = 0; first < rows; first += square) {
            const std::int64_t last = first + square < rows ? first + square : rows;
            for (std::int64_t down = begin; down < end; ++down) {
                const std::uint8_t* const from = x + down / width * size + down % width;
                for (std::int64_t row = first; row < last; ++row) y[down * rows + row] = from[row * width];
            }
        }
    });
}

void quantise_blocks(const QuantiseBlocks& op) {
    const auto blocks = [](std::int64_t numbers) { return (numbers + fp8_block - 1) / fp8_block; };
    BlockScales scales(op.scales), transposed_scales(op.transposed_scales);
    with_type(op.x.dtype(), [&](auto t) {
        for_each_part<decltype(t)>(op, [&](const auto& part) {
            if (op.blocks == Fp8Scales::rows) {
                quantise_part_by_rows(part, scales, transposed_scales);
                scales.advance(part.rows);
                transposed_scales.advance(blocks(part.padded) * transposed_scales.pitch);
            } else {
                quantise_part_by_squares(part, scales, transposed_scales);
                scales.advance(blocks(part.rows) * scales.pitch);
                transposed_scales.advance(blocks(part.width) * transposed_scales.pitch);
            }
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
