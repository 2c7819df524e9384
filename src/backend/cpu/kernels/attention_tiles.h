#pragma once

#include "backend/cpu/kernels/attention_parts.h"
#include "backend/cpu/kernels/transpose.h"

/// Products of fp32 tiles that attention's forward and backward kernels share.
///
/// Work is done in tiles of at most `block` × `block` (query, key) pairs, all in fp32. One of the two kinds
/// of token, the kernel's own block, always runs along vector lanes (the columns), the other one along rows.
/// So the columns' operands are transposed to [D][block] once per block, the rows' operands are used as they
/// lie in memory (their elements are only broadcast), and softmax needs no reduction across lanes.
namespace drover::cpu::DROVER_ISA {

/// Tiles that are cut by the causal or window edge are worked on in strips of this many rows, each over the
/// columns that it can see rounded to this many; a multiple of `lanes` for every instruction set.
inline constexpr std::int64_t strip = 16;
inline constexpr std::int64_t max_block = 64;
/// Floats of a buffer that holds one head of a block of tokens.
inline constexpr std::int64_t block_area = 64 * 256;
inline constexpr std::int64_t max_head_size = block_area / strip;

/// Tokens in a block: 64, fewer where heads are so large that the buffers would overflow.
inline std::int64_t block_for(std::int64_t head_size) {
    if (head_size > max_head_size) __builtin_trap();
    std::int64_t block = max_block;
    while (block * head_size > block_area) block /= 2;
    return block;
}

// ------------------------------------------------------------------------------------------ products of
// tiles

/// Accumulators that fit into the registers together with their operands: tile_rows × tile_vectors.
inline constexpr int tile_rows = 6;
inline constexpr int tile_vectors = lanes == 16 ? 4 : 2;

/// Operands of a product of tiles; b and c have rows of `block` floats.
struct Product {
    const float* a;
    std::int64_t pitch;  ///< floats between rows of a
    const float* b;
    float* c;
    std::int64_t block;
    std::int64_t depth;
};

/// c[i][:] = Σ a[i][k] · b[k][:], or with a transposed, c[i][:] += Σ a[k][i] · b[k][:], for some rows i and
/// vectors.
template <bool transposed, int rows, int vectors>
[[gnu::noinline]] void multiply_tile(const Product& product, std::int64_t row, std::int64_t column) {
    const std::int64_t pitch = product.pitch, block = product.block, depth = product.depth;
    const float* a = product.a + (transposed ? row : row * pitch);
    const float* b = product.b + column;
    float* c = product.c + row * block + column;

    Floats sums[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j)
            sums[i][j] = transposed ? load_vector(c + i * block + j * lanes) : Floats{};
    }
    for (std::int64_t k = 0; k < depth; ++k) {
        Floats factors[vectors];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) factors[j] = load_vector(b + k * block + j * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Floats element = splat(transposed ? a[k * pitch + i] : a[i * pitch + k]);
#pragma GCC unroll 8
            for (int j = 0; j < vectors; ++j) sums[i][j] += element * factors[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) store_vector(c + i * block + j * lanes, sums[i][j]);
    }
}

/// The last rows, fewer than `rows` + 1.
template <bool transposed, int rows, int vectors>
inline void multiply_rest(const Product& product, std::int64_t row, std::int64_t rest, std::int64_t column) {
    if constexpr (rows > 0) {
        if (rest == rows) return multiply_tile<transposed, rows, vectors>(product, row, column);
        multiply_rest<transposed, rows - 1, vectors>(product, row, rest, column);
    }
}

/// All rows of columns [column, end): as many panels of `vectors` vectors as fit, then narrower ones.
template <bool transposed, int vectors = tile_vectors>
inline void multiply(const Product& product, std::int64_t rows, std::int64_t column, std::int64_t end) {
    for (; column + vectors * lanes <= end; column += vectors * lanes) {
        std::int64_t row = 0;
        for (; row + tile_rows <= rows; row += tile_rows)
            multiply_tile<transposed, tile_rows, vectors>(product, row, column);
        multiply_rest<transposed, tile_rows - 1, vectors>(product, row, rows - row, column);
    }
    if constexpr (vectors > 1) multiply<transposed, vectors - 1>(product, rows, column, end);
}

// ----------------------------------------------------------------------------------- packing and transposing

/// to[j][i] = from[i][j]; both sizes are multiples of `lanes`.
inline void transpose(const float* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns,
                      float* to, std::int64_t to_pitch) {
    for (std::int64_t i = 0; i < rows; i += lanes)
        for (std::int64_t j = 0; j < columns; j += lanes) {
            Floats square[lanes];
#pragma GCC unroll 16
            for (int k = 0; k < lanes; ++k) square[k] = load_vector(from + (i + k) * from_pitch + j);
            transpose_square(square);
#pragma GCC unroll 16
            for (int k = 0; k < lanes; ++k) store_vector(to + (j + k) * to_pitch + i, square[k]);
        }
}

/// Tokens [first, first + count) as fp32 times `factor`, in rows of pitch() floats that end in zeros.
template <class T>
inline void pack(const HeadRows<T>& head, std::int64_t first, std::int64_t count, float factor, float* to) {
    const std::int64_t pitch = head.pitch();
    for (std::int64_t i = 0; i < count; ++i) {
        const T* from = head.row(first + i);
        float* row = to + i * pitch;
        for (std::int64_t j = round_up(head.head_size, lanes); j < pitch; j += lanes)
            store_vector(row + j, Floats{});
        for_each_vector(head.head_size,
                        [&](auto at) { store_vector(row + at.begin, load(from, at) * factor); });
    }
}

/// The same transposed to [pitch][block], with zeros in the columns from `count` to the next multiple of
/// `strip`. `rows` is room for the packed tokens, which stay there.
template <class T>
inline void pack_transposed(const HeadRows<T>& head, std::int64_t first, std::int64_t count, float factor,
                            float* rows, float* to, std::int64_t block) {
    const std::int64_t pitch = head.pitch(), padded = round_up(count, strip);
    pack(head, first, count, factor, rows);
    for (std::int64_t i = count * pitch; i < padded * pitch; i += lanes) store_vector(rows + i, Floats{});
    transpose(rows, pitch, padded, pitch, to, block);
}

/// Writes columns of from, which is [pitch][block], to tokens [first, first + count), times `factor`.
template <class T>
inline void unpack_transposed(const HeadRows<T>& head, std::int64_t first, std::int64_t count, float factor,
                              const float* from, float* rows, std::int64_t block) {
    const std::int64_t pitch = head.pitch();
    transpose(from, block, pitch, round_up(count, strip), rows, pitch);
    for (std::int64_t i = 0; i < count; ++i) {
        T* to = head.row(first + i);
        const float* row = rows + i * pitch;
        for_each_vector(head.head_size,
                        [&](auto at) { store(to, at, load_vector(row + at.begin) * factor); });
    }
}

inline void fill_zero(float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += lanes) store_vector(to + i, Floats{});
}

// ----------------------------------------------------------------------------------------- visibility in a
// tile

/// Rows [row, row + rows) of a tile and the range of columns, in multiples of `strip`, that they see any of.
struct Strip {
    std::int64_t row, rows;
    std::int64_t column, column_end;
    bool whole;  ///< they see all of it
};

/// Calls body(Strip) for the rows of a tile in order: once where every row sees every column.
template <class Body>
inline void for_each_strip(const Band& band, std::int64_t rows, std::int64_t columns, const Body& body) {
    const std::int64_t column_end = round_up(columns, strip);
    if (band.whole(0, rows, columns)) return body(Strip{0, rows, 0, column_end, true});
    for (std::int64_t row = 0; row < rows; row += strip) {
        const std::int64_t count = smaller(strip, rows - row);
        const std::int64_t begin = larger(0, band.begin + row) / strip * strip;
        const std::int64_t end = smaller(column_end, round_up(larger(0, band.end + row + count - 1), strip));
        if (begin < end) body(Strip{row, count, begin, end, band.whole(row, count, columns)});
    }
}

}  // namespace drover::cpu::DROVER_ISA
