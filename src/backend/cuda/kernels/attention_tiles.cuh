#pragma once

#include <climits>

#include "backend/cuda/kernels/device_code.cuh"
#include "backend/cuda/kernels/sequence_map.h"

/// Tiles of 64 queries and 64 keys, in fp32, for a block of 16 × 16 threads: a thread owns 4 × 4 elements of
/// a product of tiles. Loads put zeros where a token is in no sequence or beyond the tile, so that the
/// contents there cannot matter.
namespace drover::cuda::tiles {

constexpr int tile = 64;
constexpr int threads = 256;
/// Columns of a head that are in shared memory at a time while scores are made.
constexpr int slice = 32;
/// Keeps rows of shared tiles aligned to 16 bytes and columns in different banks.
constexpr int pitch = tile + 4;

/// A tensor [N,heads,D] as passed to kernels.
template <class T>
struct Heads {
    T* data;
    std::int64_t token_stride, head_stride;

    explicit Heads(const Tensor& tensor)
        : data(static_cast<T*>(tensor.raw())),
          token_stride(tensor.stride(0)),
          head_stride(tensor.stride(1)) {}
    __device__ T* at(std::int64_t token, std::int64_t head) const {
        return data + token * token_stride + head * head_stride;
    }
};

/// Shared memory that tiles are loaded into: two transposed slices, or half a tile's rows of up to 128
/// columns.
struct Loaded {
    alignas(16) float first[slice * pitch];
    alignas(16) float second[slice * pitch];
};
static_assert(sizeof(Loaded) >= slice * 128 * sizeof(float));

/// A tile of up to 64 tokens, and (in shared memory) which of them are in a sequence.
struct TileTokens {
    std::int64_t first;
    int count;
    const bool* used;
};

/// Sets used[] of a tile. The threads must be synchronised before it is read.
__device__ inline void mark_used(const SequenceOfToken* map, std::int64_t first, int count, bool* used) {
    if (threadIdx.x < tile) used[threadIdx.x] = threadIdx.x < count && map[first + threadIdx.x].index >= 0;
}

/// to[column][token] = columns [column, column + slice) of a head.
template <class T>
__device__ void load_transposed(const Heads<const T>& from, std::int64_t head, int head_size, int column,
                                const TileTokens& tokens, float factor, float* to) {
    const int d = threadIdx.x % slice;
    for (int row = threadIdx.x / slice * 4; row < tile; row += threads / slice * 4) {
        float4 values = {0.f, 0.f, 0.f, 0.f};
        float* value = &values.x;
        if (column + d < head_size)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (row + i < tokens.count && tokens.used[row + i])
                    value[i] = factor * to_float(from.at(tokens.first + row + i, head)[column + d]);
        *reinterpret_cast<float4*>(to + d * pitch + row) = values;
    }
}

/// to[row][column] = `width` columns from `column` on, of the slice's tokens from `row` on.
template <int width, class T>
__device__ void load_rows(const Heads<const T>& from, std::int64_t head, int head_size, int column,
                          const TileTokens& tokens, int row, float* to) {
    for (int i = threadIdx.x; i < slice * width; i += threads) {
        const int r = row + i / width, c = column + i % width;
        to[i] = r < tokens.count && tokens.used[r] && c < head_size
                    ? to_float(from.at(tokens.first + r, head)[c])
                    : 0.f;
    }
}

/// A thread's part of a tile of scores: rows 4·(thread / 16) + i, columns 4·(thread % 16) + j.
struct Part {
    float value[4][4];

    __device__ void clear() {
        for (auto& row : value)
            for (float& x : row) x = 0.f;
    }
    /// += aᵀ · b for one slice.
    __device__ void add_product(const float* a, const float* b) {
        const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
#pragma unroll 8
        for (int d = 0; d < slice; ++d) {
            const float4 x = *reinterpret_cast<const float4*>(a + d * pitch + row);
            const float4 y = *reinterpret_cast<const float4*>(b + d * pitch + column);
            const float rows[4] = {x.x, x.y, x.z, x.w}, columns[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) value[i][j] = fmaf(rows[i], columns[j], value[i][j]);
        }
    }
    /// to[column][row], so that a product over the columns reads along rows.
    __device__ void store_transposed(float* to) const {
        const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
#pragma unroll
        for (int j = 0; j < 4; ++j)
            *reinterpret_cast<float4*>(to + (column + j) * pitch + row) =
                make_float4(value[0][j], value[1][j], value[2][j], value[3][j]);
    }
};

/// part = rowsᵀ · columns over the whole head: the scores of two tiles of tokens.
template <class T>
__device__ void multiply_heads(const Heads<const T>& rows, std::int64_t row_head,
                               const TileTokens& row_tokens, const Heads<const T>& columns,
                               std::int64_t column_head, const TileTokens& column_tokens, int head_size,
                               float factor, Loaded& loaded, Part& part) {
    part.clear();
    for (int d = 0; d < head_size; d += slice) {
        __syncthreads();
        load_transposed(rows, row_head, head_size, d, row_tokens, factor, loaded.first);
        load_transposed(columns, column_head, head_size, d, column_tokens, 1.f, loaded.second);
        __syncthreads();
        part.add_product(loaded.first, loaded.second);
    }
}

/// The parameters of the operation that all kernels need.
struct Geometry {
    int heads, group, head_size, row_length, tiles_of_row;
    int window;
    float scale;

    template <class Operation>
    explicit Geometry(const Operation& op)
        : heads(static_cast<int>(op.q.size(1))),
          group(static_cast<int>(op.q.size(1) / op.k.size(1))),
          head_size(static_cast<int>(op.q.size(2))),
          row_length(static_cast<int>(op.sequences.row_length)),
          tiles_of_row(static_cast<int>(ceil_div(op.sequences.row_length, tile))),
          window(op.window < op.sequences.row_length ? static_cast<int>(op.window) : 0),
          scale(op.scale) {}

    /// The block's tile, counted in `index` over all rows.
    __device__ TileTokens tokens(int index, const bool* used) const {
        const int first = index % tiles_of_row * tile;
        return {static_cast<std::int64_t>(index / tiles_of_row) * row_length + first,
                min(tile, row_length - first), used};
    }
    /// Index of a token's value in [rows,heads,row_length].
    __device__ std::int64_t statistics_at(std::int64_t token, std::int64_t head) const {
        return (token / row_length * heads + head) * row_length + token % row_length;
    }
    /// The first token that a token may see, and the end of the tokens that may see it.
    __device__ int low(const SequenceOfToken& sequence, int token) const {
        return window > 0 ? max(sequence.begin, token - window + 1) : sequence.begin;
    }
    __device__ int high(const SequenceOfToken& sequence, int token) const {
        return window > 0 ? min(sequence.end, token + window) : sequence.end;
    }
};

/// A block's tile of queries, in shared memory.
struct QueryTile {
    bool used[tile];  ///< whether a query is in a sequence
    int low[tile];    ///< the first key that it sees
    int first_key;    ///< the first one that any of them sees

    /// Fills it; all threads must call it. Late tiles have the most work and come first.
    __device__ TileTokens choose(const Geometry& geometry, const SequenceOfToken* map) {
        const TileTokens queries = geometry.tokens(gridDim.x - 1 - blockIdx.x, used);
        if (threadIdx.x == 0) first_key = INT_MAX;
        mark_used(map, queries.first, queries.count, used);
        __syncthreads();
        if (threadIdx.x < tile) {
            const int token = static_cast<int>(queries.first) + threadIdx.x;
            low[threadIdx.x] = used[threadIdx.x] ? geometry.low(map[token], token) : INT_MAX;
            atomicMin(&first_key, low[threadIdx.x]);
        }
        __syncthreads();
        return queries;
    }
    /// Whether the query in a row of the tile sees a key.
    __device__ bool visible(int row, int query, int key) const { return key <= query && key >= low[row]; }
};

/// One block per tile of tokens, head and `width` columns of a head.
template <class Operation>
dim3 grid_of(const Operation& op, const Geometry& geometry, std::int64_t heads, int width) {
    return dim3(static_cast<unsigned>(op.sequences.rows * geometry.tiles_of_row),
                static_cast<unsigned>(heads), static_cast<unsigned>(ceil_div(op.q.size(2), width)));
}

/// Columns of a result that one block computes; other blocks compute the rest from the same scores.
template <class Body>
void with_width(std::int64_t head_size, const Body& body) {
    if (head_size <= 64)
        body.template operator()<64>();
    else
        body.template operator()<128>();
}

/// A thread's part of a result: 4 rows, and columns 4·(thread % 16) + 64·block + j of `width`.
template <int width>
struct Result {
    static constexpr int columns = width / 16;
    float value[4][columns];

    __device__ void clear() {
        for (auto& row : value)
            for (float& x : row) x = 0.f;
    }
    /// += weightsᵀ · rows, where weights[key][row] is in shared memory and `from` holds the keys' rows.
    template <class T>
    __device__ void add_product(const float* weights, const Heads<const T>& from, std::int64_t head,
                                int head_size, int column, const TileTokens& tokens, Loaded& loaded) {
        const int row = threadIdx.x / 16 * 4, at = threadIdx.x % 16 * 4;
        float* rows = loaded.first;
        for (int half = 0; half < tokens.count; half += slice) {
            __syncthreads();
            load_rows<width>(from, head, head_size, column, tokens, half, rows);
            __syncthreads();
#pragma unroll 4
            for (int key = 0; key < slice; ++key) {
                const float4 w = *reinterpret_cast<const float4*>(weights + (half + key) * pitch + row);
                const float weight[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int block = 0; block < width / tile; ++block) {
                    const float4 x = *reinterpret_cast<const float4*>(rows + key * width + block * tile + at);
                    const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                    for (int i = 0; i < 4; ++i)
#pragma unroll
                        for (int j = 0; j < 4; ++j)
                            value[i][block * 4 + j] = fmaf(weight[i], values[j], value[i][block * 4 + j]);
                }
            }
        }
    }
    /// Writes factor(row) times the rows of the tile; rows of no sequence become zero.
    template <class T, class Factor>
    __device__ void store(const Heads<T>& to, std::int64_t head, int head_size, int column,
                          const TileTokens& tokens, const Factor& factor) const {
        for (int i = 0; i < 4; ++i) {
            const int row = threadIdx.x / 16 * 4 + i;
            if (row >= tokens.count) continue;
            T* out = to.at(tokens.first + row, head);
            const float f = tokens.used[row] ? factor(i) : 0.f;
            for (int j = 0; j < columns; ++j) {
                const int c = column + j / 4 * tile + threadIdx.x % 16 * 4 + j % 4;
                if (c < head_size) out[c] = from_float<T>(tokens.used[row] ? f * value[i][j] : 0.f);
            }
        }
    }
};

}  // namespace drover::cuda::tiles
