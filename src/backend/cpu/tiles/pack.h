#pragma once

#include "backend/cpu/kernels/transpose.h"
#include "backend/cpu/tiles/tile_products.h"

/// Copies pieces of bf16 matrices into the order in which tiles are loaded.
namespace drover::cpu::tiles {

/// What a tile's rows are: rows of the left operand, or pairs of depth of the right one.
enum class Operand { left, right };

/// Where a piece of an operand lies in memory: element (outer, depth), outer being a row of the left operand
/// or a column of the right one.
struct Piece {
    const bf16* data;
    std::int64_t stride;  ///< elements between stored rows
    bool depth_is_row;    ///< stored [depth][outer] rather than [outer][depth]

    Piece at(std::int64_t outer, std::int64_t depth) const {
        const std::int64_t offset = depth_is_row ? depth * stride + outer : outer * stride + depth;
        return {data + offset, stride, depth_is_row};
    }
};

/// Two stored rows of 16 elements as 16 pairs.
[[gnu::always_inline]] inline Words interleaved(const bf16* first, const bf16* second) {
    HalfWords low, high;
    __builtin_memcpy(&low, first, sizeof low);
    __builtin_memcpy(&high, second, sizeof high);
    return widen(low) | (widen(high) << 16);
}

/// A whole tile. Its 16 × 16 words are pairs of depth. Either storage order yields them, transposed or not.
template <Operand operand, bool depth_is_row>
inline void pack_whole_tile(const bf16* from, std::int64_t stride, std::byte* to) {
    Floats words[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
        if constexpr (depth_is_row)
            words[i] = bits_as<Floats>(interleaved(from + 2 * i * stride, from + (2 * i + 1) * stride));
        else
            __builtin_memcpy(&words[i], from + i * stride, sizeof words[i]);
    }
    if constexpr (depth_is_row == (operand == Operand::left)) transpose_square(words);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) __builtin_memcpy(to + 64 * i, &words[i], sizeof words[i]);
}

/// A tile of which only `width` × `depth` elements exist; the others become zero.
template <Operand operand, bool depth_is_row>
[[gnu::noinline]] void pack_partial_tile(const bf16* from, std::int64_t stride, std::int64_t width,
                                         std::int64_t depth, std::byte* to) {
    constexpr std::int64_t row_length = depth_is_row ? tile_width : tile_depth;
    const std::int64_t rows = depth_is_row ? depth : width, columns = depth_is_row ? width : depth;
    alignas(64) bf16 padded[tile_width * tile_depth];
    __builtin_memset(padded, 0, sizeof padded);
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) padded[i * row_length + j] = from[i * stride + j];
    pack_whole_tile<operand, depth_is_row>(padded, row_length, to);
}

/// Packs `width` × `depth` elements into tiles: to[panel of 16][step of 32] tiles, `steps` being the depth in
/// tiles.
template <Operand operand, bool depth_is_row>
inline void pack_panels(const Piece& piece, std::int64_t width, std::int64_t depth, std::byte* to) {
    const std::int64_t steps = (depth + tile_depth - 1) / tile_depth;
    // Neighbouring panels of one step share cache lines of the matrix.
    for (std::int64_t step = 0; step < steps; ++step)
        for (std::int64_t begin = 0; begin < width; begin += tile_width) {
            const Piece from = piece.at(begin, step * tile_depth);
            std::byte* tile = to + (begin / tile_width * steps + step) * tile_bytes;
            const std::int64_t own_width = width - begin < tile_width ? width - begin : tile_width;
            const std::int64_t rest = depth - step * tile_depth,
                               own_depth = rest < tile_depth ? rest : tile_depth;
            if (own_width == tile_width && own_depth == tile_depth)
                pack_whole_tile<operand, depth_is_row>(from.data, from.stride, tile);
            else
                pack_partial_tile<operand, depth_is_row>(from.data, from.stride, own_width, own_depth, tile);
        }
}

template <Operand operand>
inline void pack(const Piece& piece, std::int64_t width, std::int64_t depth, std::byte* to) {
    if (piece.depth_is_row)
        pack_panels<operand, true>(piece, width, depth, to);
    else
        pack_panels<operand, false>(piece, width, depth, to);
}

}  // namespace drover::cpu::tiles
