#include "backend/cuda/kernels/matrix_tiles.cuh"
#include "backend/cuda/kernels/addition_chains.h"

// A block squares a tile of a matrix and leaves partial sums of the tile's rows and columns; a second kernel
// adds them in order, so a gradient is read once.

namespace drover::cuda {
namespace {

struct SquaredMatrix {
    const void* gradient;
    float *row_sums, *column_sums;
    std::int64_t rows, columns;
    std::int64_t row_partials;     ///< where they begin: [column tiles][rows]
    std::int64_t column_partials;  ///< likewise: [row tiles][columns]
    ChainLink link;                ///< chains the matrices with the same column_sums
    std::int64_t type;             ///< a DType

    __host__ __device__ std::int64_t row_tiles() const { return row_tiles_of(rows); }
    __host__ __device__ std::int64_t column_tiles() const { return column_tiles_of(columns); }
};

std::int64_t chunks_of(const SquaredMatrix& matrix) {
    return matrix.row_tiles() * matrix.column_tiles();
}

/// T: the type of all gradients, or Any.
template <class T>
__global__ void __launch_bounds__(chunk_threads, 3)
    square_tiles(const LeafChunks<SquaredMatrix> matrices, const float* scalars, float* partials) {
    __shared__ float of_warp[tile_warps][tile_columns];
    const NumberedChunk numbered = matrices.numbered_chunk();
    const SquaredMatrix matrix = matrices.rows[numbered.leaf];
    const MatrixTile tile(numbered.index, matrix.rows, matrix.columns);
    const float clip_factor = scalars[StepScalar::clip_factor];
    float* const row_partials = partials + matrix.row_partials + tile.column_tile * matrix.rows;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    float of_column[8] = {};
    for_each_row<T>(tile, matrix.gradient, static_cast<DType>(matrix.type),
                    [&](std::int64_t row, const float(&g)[8]) {
                        float of_row = 0;
#pragma unroll
                        for (int e = 0; e < 8; ++e) {
                            const float clipped = g[e] * clip_factor;
                            of_row += clipped * clipped;
                            of_column[e] += clipped * clipped;
                        }
                        of_row = warp_sum(of_row);
                        if (lane == 0) row_partials[row] = of_row;
                    });
#pragma unroll
    for (int e = 0; e < 8; ++e) of_warp[warp][lane * 8 + e] = of_column[e];
    __syncthreads();
    const std::int64_t column = tile.column_tile * tile_columns + threadIdx.x;
    if (column >= matrix.columns) return;
    float sum = 0;
    for (int i = 0; i < tile_warps; ++i) sum += of_warp[i][threadIdx.x];
    partials[matrix.column_partials + tile.row_tile * matrix.columns + column] = sum;
}
static_assert(tile_columns == chunk_threads);

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
    with_common_type(
        matrices, [](const SquaredMatrix& matrix) { return static_cast<DType>(matrix.type); },
        [&]<class T>() {
            square_tiles<T><<<tiles.chunks(), chunk_threads, 0, launch.stream>>>(
                tiles, elements<const float>(op.scalars), sums);
        });
    add_partials<<<dim3(16, tiles.leaves), 256, 0, launch.stream>>>(tiles.rows, sums);
    check_launch("adafactor_sums");
}

}  // namespace drover::cuda
