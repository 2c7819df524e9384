#include "backend/cuda/kernels/any_type.cuh"
#include "backend/cuda/kernels/leaf_chunks.cuh"
#include "backend/cuda/kernels/same_target.cuh"

// A block squares a tile of a matrix and leaves partial sums of the tile's rows and columns; a second kernel
// adds them in order. So a gradient is read once.

namespace drover::cuda {
namespace {

constexpr int tile_rows = 128, tile_columns = 32 * 8, warps = chunk_threads / 32;
/// Rows that a warp has under way at once.
constexpr int unrolled = 4;

struct SquaredMatrix {
    const void* gradient;
    float *row_sums, *column_sums;
    std::int64_t rows, columns;
    std::int64_t row_partials;     ///< where they begin: [column tiles][rows]
    std::int64_t column_partials;  ///< likewise: [row tiles][columns]
    ChainLink link;                ///< of those with the same column_sums
    std::int64_t type;             ///< a DType

    __host__ __device__ std::int64_t row_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
    __host__ __device__ std::int64_t column_tiles() const {
        return (columns + tile_columns - 1) / tile_columns;
    }
};

std::int64_t chunks_of(const SquaredMatrix& matrix) {
    return matrix.row_tiles() * matrix.column_tiles();
}

__global__ void __launch_bounds__(chunk_threads)
    square_tiles(const LeafChunks<SquaredMatrix> matrices, const float* scalars, float* partials) {
    __shared__ float of_warp[warps][tile_columns];
    const NumberedChunk tile = matrices.numbered_chunk();
    const SquaredMatrix matrix = matrices.rows[tile.leaf];
    const auto dtype = static_cast<DType>(matrix.type);
    const float clip_factor = scalars[StepScalar::clip_factor];
    const std::int64_t row_tile = tile.index / matrix.column_tiles();
    const std::int64_t column_tile = tile.index - row_tile * matrix.column_tiles();
    const std::int64_t first_row = row_tile * tile_rows, first_column = column_tile * tile_columns;
    const std::int64_t end_row = first_row + tile_rows < matrix.rows ? first_row + tile_rows : matrix.rows;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::int64_t column = first_column + lane * 8;
    const bool wide = matrix.columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(matrix.gradient) % 16 == 0;
    float* const row_partials = partials + matrix.row_partials + column_tile * matrix.rows;

    float of_column[8] = {};
    for (std::int64_t row = first_row + warp; row < end_row; row += warps * unrolled) {
        Registers<Any> loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i)
            if (wide && row + i * warps < end_row && column < matrix.columns)
                loaded[i] =
                    load_eight_of<Any>(matrix.gradient, dtype, (row + i * warps) * matrix.columns + column);
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t here = row + i * warps;
            if (here >= end_row) break;
            float g[8] = {};
            if (wide) {
                if (column < matrix.columns) to_floats_of<Any>(loaded[i], dtype, g);
            } else {
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    if (column + e < matrix.columns)
                        g[e] = load_one_of(matrix.gradient, dtype, here * matrix.columns + column + e);
            }
            float of_row = 0;
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const float clipped = g[e] * clip_factor;
                of_row += clipped * clipped;
                of_column[e] += clipped * clipped;
            }
            of_row = warp_sum(of_row);
            if (lane == 0) row_partials[here] = of_row;
        }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) of_warp[warp][lane * 8 + e] = of_column[e];
    __syncthreads();
    if (first_column + threadIdx.x >= matrix.columns) return;
    float sum = 0;
    for (int i = 0; i < warps; ++i) sum += of_warp[i][threadIdx.x];
    partials[matrix.column_partials + row_tile * matrix.columns + first_column + threadIdx.x] = sum;
}

__device__ float sum_of_partials(const float* partials, std::int64_t count, std::int64_t distance) {
    float sum = 0;
#pragma unroll 4
    for (std::int64_t i = 0; i < count; ++i) sum += partials[i * distance];
    return sum;
}

/// Blocks (·, matrix): one thread per row, and per column of the first matrix of a chain.
__global__ void add_partials(const SquaredMatrix* matrices, const float* partials) {
    const SquaredMatrix& matrix = matrices[blockIdx.y];
    const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
    const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    for (std::int64_t row = thread; row < matrix.rows; row += step)
        matrix.row_sums[row] +=
            sum_of_partials(partials + matrix.row_partials + row, matrix.column_tiles(), matrix.rows);
    if (!matrix.link.first) return;
    for (std::int64_t column = thread; column < matrix.columns; column += step) {
        float sum = matrix.column_sums[column];
        for (int i = blockIdx.y; i >= 0; i = matrices[i].link.next)
            sum += sum_of_partials(partials + matrices[i].column_partials + column, matrices[i].row_tiles(),
                                   matrices[i].columns);
        matrix.column_sums[column] = sum;
    }
}

}  // namespace

void adafactor_sums(const Launch& launch, const AdafactorSums& op) {
    std::vector<SquaredMatrix> matrices;
    std::vector<const void*> targets;
    std::int64_t partials = 0;
    for (const AdafactorLeaf& leaf : op.leaves) {
        if (leaf.gradient.rank() != 2 || !leaf.counted || leaf.gradient.numel() == 0) continue;
        SquaredMatrix matrix{.gradient = leaf.gradient.raw(),
                             .row_sums = elements<float>(leaf.rows),
                             .column_sums = elements<float>(leaf.columns),
                             .rows = leaf.gradient.size(0),
                             .columns = leaf.gradient.size(1),
                             .type = static_cast<std::int64_t>(leaf.gradient.dtype())};
        matrix.row_partials = partials;
        matrix.column_partials = partials + matrix.column_tiles() * matrix.rows;
        partials = matrix.column_partials + matrix.row_tiles() * matrix.columns;
        matrices.push_back(matrix);
        targets.push_back(matrix.column_sums);
    }
    if (matrices.empty()) return;
    require(matrices.size() <= 65535, "adafactor_sums: more leaves than a grid holds");
    const std::vector<ChainLink> links = chain_targets(targets);
    for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i].link = links[i];
    const LeafChunks<SquaredMatrix> tiles = LeafTable<SquaredMatrix>(launch, matrices).all();
    auto* sums = launch.scratch.take_array<float>(static_cast<std::size_t>(partials));
    square_tiles<<<tiles.chunks(), chunk_threads, 0, launch.stream>>>(
        tiles, elements<const float>(op.scalars), sums);
    add_partials<<<dim3(16, tiles.leaves), 256, 0, launch.stream>>>(tiles.rows, sums);
    check_launch("adafactor_sums");
}

}  // namespace drover::cuda
