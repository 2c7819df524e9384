#pragma once

#include "backend/cuda/kernels/any_type.cuh"
#include "backend/cuda/kernels/leaf_chunks.cuh"

/// Packed matrices cut into tiles, one per block. A lane has the same eight columns in all rows of a tile, so
/// per-column values stay in registers; a warp has every eighth row.
namespace drover::cuda {

inline constexpr int tile_rows = 256, tile_columns = 32 * 8, tile_warps = chunk_threads / 32;

__host__ __device__ inline std::int64_t row_tiles_of(std::int64_t rows) {
    return (rows + tile_rows - 1) / tile_rows;
}
__host__ __device__ inline std::int64_t column_tiles_of(std::int64_t columns) {
    return (columns + tile_columns - 1) / tile_columns;
}

/// A thread's part of tile number `index`.
struct MatrixTile {
    std::int64_t row_tile, column_tile;
    std::int64_t first_row, end_row;  ///< of the warp's rows, which are tile_warps apart
    std::int64_t column;              ///< the lane's first; may be past the last
    std::int64_t columns;             ///< of the matrix

    __device__ MatrixTile(std::int64_t index, std::int64_t rows, std::int64_t matrix_columns)
        : row_tile(index / column_tiles_of(matrix_columns)),
          column_tile(index - row_tile * column_tiles_of(matrix_columns)),
          first_row(row_tile * tile_rows + threadIdx.x / 32),
          end_row(row_tile * tile_rows + tile_rows < rows ? row_tile * tile_rows + tile_rows : rows),
          column(column_tile * tile_columns + threadIdx.x % 32 * 8),
          columns(matrix_columns) {}

    /// Element of the lane's first column in a row.
    __device__ std::int64_t at(std::int64_t row) const { return row * columns + column; }

    /// The lane's eight of a value per column; 0 past the last column.
    __device__ void load_columns(const float* of_column, float (&values)[8]) const {
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = column + e < columns ? of_column[column + e] : 0.f;
    }
};

/// Whether rows of eights are aligned.
__device__ inline bool eights_are_aligned(const void* data, std::int64_t columns) {
    return columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

/// Calls body(row, values) for the warp's rows with the lane's eight elements, 0 past the last column. All
/// lanes of a warp call it together.
template <class T, class Body>
__device__ inline void for_each_row(const MatrixTile& tile, const void* data, DType dtype, const Body& body) {
    if (!eights_are_aligned(data, tile.columns)) {
#pragma unroll 1
        for (std::int64_t row = tile.first_row; row < tile.end_row; row += tile_warps) {
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e)
                values[e] = tile.column + e < tile.columns ? load_one_of(data, dtype, tile.at(row) + e) : 0.f;
            body(row, values);
        }
        return;
    }
    // Several loads at once hide memory latency; as many as fit into registers.
    constexpr int unrolled = sizeof(Registers<T>) > 16 ? 4 : 8;
    const bool inside = tile.column < tile.columns;
    for (std::int64_t first = tile.first_row; first < tile.end_row; first += tile_warps * unrolled) {
        Registers<T> loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i)
            if (inside && first + i * tile_warps < tile.end_row)
                loaded[i] = load_eight_of<T>(data, dtype, tile.at(first + i * tile_warps));
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (row >= tile.end_row) break;
            float values[8] = {};
            if (inside) to_floats_of<T>(loaded[i], dtype, values);
            body(row, values);
        }
    }
}

/// Calls body.template operator()<T>() with the type that all tensors have, or Any. `dtype_of(item)` is an
/// item's.
template <class Items, class DtypeOf, class Body>
void with_common_type(const Items& items, const DtypeOf& dtype_of, const Body& body) {
    const DType first = dtype_of(items.front());
    for (const auto& item : items)
        if (dtype_of(item) != first) return body.template operator()<Any>();
    with_floating(first, body);
}

}  // namespace drover::cuda
