#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/vector_math.h"
#include "backend/cpu/tiles/amx_instructions.h"

/// The units that multiply bf16 tiles: AMX's tile registers, or vectors with products of bf16 pairs. Both
/// read operands that pack.h has laid out and sum in fp32.
namespace drover::cpu::tiles {

inline constexpr std::int64_t tile_width = 16;  ///< rows of the left operand, columns of the right one
inline constexpr std::int64_t tile_depth = 32;
inline constexpr std::int64_t tile_floats = tile_bytes / sizeof(float);  ///< 16 × 16 sums

/// sums (+)= left · right, in tiles.
struct TileProduct {
    const std::byte* left;
    std::int64_t left_pitch;  ///< bytes between panels of 16 rows
    const std::byte* right;
    std::int64_t right_pitch;  ///< bytes between panels of 16 columns; their tiles are back to back
    std::int64_t steps;        ///< depth, in tiles
    float* sums;
    std::int64_t sums_pitch;  ///< floats between rows of tiles; the tiles of a row are back to back
    bool add;
    /// Bytes between the rows of a left tile, and between the tiles of a panel. The defaults are those of
    /// packed panels; others address a matrix in place.
    std::int64_t left_row = 64;
    std::int64_t left_step = tile_bytes;

    TileProduct at(std::int64_t row_tile, std::int64_t column_tile) const {
        TileProduct moved = *this;
        moved.left += row_tile * left_pitch;
        moved.right += column_tile * right_pitch;
        moved.sums += row_tile * sums_pitch + column_tile * tile_floats;
        return moved;
    }
};

/// Only where amx_usable() (amx_probe.h).
struct AmxUnit {
    /// A tile's rows are cache lines anyway; where they lie does not matter.
    static constexpr bool loads_strided_tiles = true;

    static void begin() { configure_tiles(); }
    static void end() { release_tiles(); }

    /// A square of 2 × 2 tiles, or part of one: four tiles of sums, two of each operand.
    template <int rows, int columns>
    static void multiply(const TileProduct& product) {
        constexpr bool second_row = rows == 2, second_column = columns == 2;
        float* const sums[2] = {product.sums, product.sums + product.sums_pitch};
        if (product.add) {
            load_tile<0>(sums[0]);
            if constexpr (second_column) load_tile<1>(sums[0] + tile_floats);
            if constexpr (second_row) load_tile<2>(sums[1]);
            if constexpr (second_row && second_column) load_tile<3>(sums[1] + tile_floats);
        } else {
            zero_tile<0>();
            zero_tile<1>();
            zero_tile<2>();
            zero_tile<3>();
        }
        for (std::int64_t step = 0; step < product.steps; ++step) {
            const std::byte* left = product.left + step * product.left_step;
            const std::byte* right = product.right + step * tile_bytes;
            load_tile<6>(right);
            load_tile<4>(left, product.left_row);
            multiply_tiles<0, 4, 6>();
            if constexpr (second_row) {
                load_tile<5>(left + product.left_pitch, product.left_row);
                multiply_tiles<2, 5, 6>();
            }
            if constexpr (second_column) {
                load_tile<7>(right + product.right_pitch);
                multiply_tiles<1, 4, 7>();
                if constexpr (second_row) multiply_tiles<3, 5, 7>();
            }
        }
        store_tile<0>(sums[0]);
        if constexpr (second_column) store_tile<1>(sums[0] + tile_floats);
        if constexpr (second_row) store_tile<2>(sums[1]);
        if constexpr (second_row && second_column) store_tile<3>(sums[1] + tile_floats);
    }
};

/// Only where the processor has AVX512_BF16.
struct VectorUnit {
    /// Rows that are pages apart would share one set of the first-level cache, and each would take a register
    /// for its address.
    static constexpr bool loads_strided_tiles = false;

    static void begin() {}
    static void end() {}

    /// One tile of sums is sixteen registers; each pair of depth multiplies a row of the right tile by a pair
    /// of every row of the left one.
    template <int rows, int columns>
    static void multiply(const TileProduct& product) {
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < columns; ++column) multiply_tile(product.at(row, column));
    }

  private:
    [[gnu::noinline]] static void multiply_tile(const TileProduct& product) {
        __m512 sums[tile_width];
#pragma GCC unroll 16
        for (int i = 0; i < tile_width; ++i)
            sums[i] = product.add ? _mm512_load_ps(product.sums + 16 * i) : _mm512_setzero_ps();
        for (std::int64_t step = 0; step < product.steps; ++step) {
            const auto* left = reinterpret_cast<const char*>(product.left + step * tile_bytes);
            const auto* right = reinterpret_cast<const char*>(product.right + step * tile_bytes);
            for (int pair = 0; pair < 16; ++pair) {
                const auto factors = bits_as<__m512bh>(_mm512_load_si512(right + 64 * pair));
#pragma GCC unroll 16
                for (int i = 0; i < tile_width; ++i) {
                    std::int32_t element;
                    __builtin_memcpy(&element, left + 64 * i + 4 * pair, sizeof element);
                    sums[i] =
                        _mm512_dpbf16_ps(sums[i], factors, bits_as<__m512bh>(_mm512_set1_epi32(element)));
                }
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < tile_width; ++i) _mm512_store_ps(product.sums + 16 * i, sums[i]);
    }
};

/// A product of any number of tiles.
template <class Unit>
inline void multiply(const TileProduct& product, std::int64_t row_tiles, std::int64_t column_tiles) {
    for (std::int64_t column = 0; column < column_tiles; column += 2)
        for (std::int64_t row = 0; row < row_tiles; row += 2) {
            const TileProduct square = product.at(row, column);
            const bool tall = row + 1 < row_tiles, wide = column + 1 < column_tiles;
            if (tall && wide)
                Unit::template multiply<2, 2>(square);
            else if (tall)
                Unit::template multiply<2, 1>(square);
            else if (wide)
                Unit::template multiply<1, 2>(square);
            else
                Unit::template multiply<1, 1>(square);
        }
}

}  // namespace drover::cpu::tiles
