#include "backend/cuda/kernels/adafactor_shares.cuh"
#include "backend/cuda/kernels/matrix_tiles.cuh"
#include "backend/cuda/kernels/addition_chains.h"

namespace drover::cuda {
namespace {

struct SquaredLeaf {
    const void* gradient;
    const float *row_factors, *column_factors;  ///< null for vectors
    float* means;                               ///< null for matrices
    double* squares;                            ///< null where the leaf is not counted
    std::int64_t count, columns;
    ChainLink link;     ///< chains the leaves with the same squares
    std::int64_t type;  ///< a DType
};

/// Matrices are cut into tiles, vectors into pieces.
std::int64_t chunks_of(const SquaredLeaf& leaf) {
    return leaf.means ? ceil_div(leaf.count, elements_per_chunk)
                      : row_tiles_of(leaf.count / leaf.columns) * column_tiles_of(leaf.columns);
}

/// A thread's part of Σ U² over a tile of a matrix.
template <class T>
__device__ double squares_of_matrix(const SquaredLeaf& leaf, std::int64_t index, float clip_factor) {
    const MatrixTile tile(index, leaf.count / leaf.columns, leaf.columns);
    float of_column[8];
    tile.load_columns(leaf.column_factors, of_column);
    double sum = 0;
    for_each_row<T>(tile, leaf.gradient, static_cast<DType>(leaf.type),
                    [&](std::int64_t row, const float(&g)[8]) {
                        const float of_row = clip_factor * leaf.row_factors[row];
                        float squares = 0;
#pragma unroll
                        for (int e = 0; e < 8; ++e) {
                            const float u = g[e] * of_row * of_column[e];
                            squares += u * u;
                        }
                        sum += static_cast<double>(squares);
                    });
    return sum;
}

/// The same for a piece of a vector, whose mean squares are updated first.
__device__ double squares_of_vector(const SquaredLeaf& leaf, std::int64_t index, float clip_factor,
                                    Shares shares, float eps, bool skips) {
    const std::int64_t begin = index * elements_per_chunk, all = leaf.count;
    const std::int64_t end = begin + elements_per_chunk < all ? begin + elements_per_chunk : all;
    double sum = 0;
    for (std::int64_t at = begin + threadIdx.x; at < end; at += chunk_threads) {
        const float clipped = load_one_of(leaf.gradient, static_cast<DType>(leaf.type), at) * clip_factor;
        const float square = clipped * clipped;
        const float mean = shares.mean(leaf.means[at], square + eps);
        if (!skips) leaf.means[at] = mean;
        sum += static_cast<double>(square / mean);
    }
    return sum;
}

/// T: the type of all gradients, or Any.
template <class T>
__global__ void __launch_bounds__(chunk_threads, 3)
    square_updates(const LeafChunks<SquaredLeaf> leaves, const float* scalars, float eps, double* of_chunk) {
    const NumberedChunk chunk = leaves.numbered_chunk();
    const SquaredLeaf leaf = leaves.rows[chunk.leaf];
    const float clip_factor = scalars[StepScalar::clip_factor];
    const bool skips = scalars[StepScalar::skips] != 0;
    const double sum =
        block_sum(leaf.means ? squares_of_vector(leaf, chunk.index, clip_factor, Shares(scalars), eps, skips)
                             : squares_of_matrix<T>(leaf, chunk.index, clip_factor));
    if (threadIdx.x == 0) of_chunk[leaves.begin + blockIdx.x] = sum;
}

__global__ void add_chunks(const LeafChunks<SquaredLeaf> leaves, const double* of_chunk, double* of_leaf) {
    const double sum = sum_of_chunks(leaves, of_chunk);
    if (threadIdx.x == 0) of_leaf[blockIdx.x] = sum;
}

/// One thread per chain of leaves that are clipped together.
__global__ void add_leaves(const SquaredLeaf* leaves, int count, const double* of_leaf) {
    const int leaf = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaf >= count || !leaves[leaf].link.first) return;
    double sum = *leaves[leaf].squares;
    for (int i = leaf; i >= 0; i = leaves[i].link.next) sum += of_leaf[i];
    *leaves[leaf].squares = sum;
}

}  // namespace

void adafactor_squares(const Launch& launch, const AdafactorSquares& op) {
    std::vector<SquaredLeaf> rows;
    std::vector<const void*> targets;
    for (const AdafactorLeaf& leaf : op.leaves) {
        const bool is_matrix = leaf.gradient.rank() == 2;
        if (leaf.gradient.numel() == 0 || (is_matrix && !leaf.counted)) continue;
        rows.push_back({.gradient = leaf.gradient.raw(),
                        .row_factors = is_matrix ? elements<float>(leaf.rows) : nullptr,
                        .column_factors = is_matrix ? elements<float>(leaf.columns) : nullptr,
                        .means = is_matrix ? nullptr : elements<float>(leaf.means),
                        .squares = leaf.counted ? elements<double>(leaf.squares) : nullptr,
                        .count = leaf.gradient.numel(),
                        .columns = is_matrix ? leaf.gradient.size(1) : 1,
                        .type = static_cast<std::int64_t>(leaf.gradient.dtype())});
        targets.push_back(rows.back().squares);
    }
    if (rows.empty()) return;
    const std::vector<ChainLink> links = chain_targets(targets);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].link = links[i];
    const LeafChunks<SquaredLeaf> leaves = LeafTable<SquaredLeaf>(launch, rows).all();
    auto* of_chunk =
        launch.scratch.take_array<double>(static_cast<std::size_t>(leaves.chunks()) + rows.size());
    double* const of_leaf = of_chunk + leaves.chunks();
    with_common_type(
        rows, [](const SquaredLeaf& leaf) { return static_cast<DType>(leaf.type); },
        [&]<class T>() {
            square_updates<T><<<leaves.chunks(), chunk_threads, 0, launch.stream>>>(
                leaves, elements<const float>(op.scalars), op.eps, of_chunk);
        });
    add_chunks<<<leaves.leaves, 256, 0, launch.stream>>>(leaves, of_chunk, of_leaf);
    add_leaves<<<ceil_div(leaves.leaves, 128), 128, 0, launch.stream>>>(leaves.rows, leaves.leaves, of_leaf);
    check_launch("adafactor_squares");
}

}  // namespace drover::cuda
