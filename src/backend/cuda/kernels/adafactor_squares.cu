#include "backend/cuda/kernels/adafactor_shares.cuh"
#include "backend/cuda/kernels/any_type.cuh"
#include "backend/cuda/kernels/leaf_chunks.cuh"
#include "backend/cuda/kernels/same_target.cuh"

namespace drover::cuda {
namespace {

struct SquaredLeaf {
    const void* gradient;
    const float *row_factors, *column_factors;  ///< null for vectors
    float* means;                               ///< null for matrices
    double* squares;                            ///< null where the leaf is not counted
    std::int64_t count, columns;
    ChainLink link;     ///< of those with the same squares
    std::int64_t type;  ///< a DType
};

/// Σ U² over eight elements (or `count`) of a matrix, from element `at`.
__device__ float squares_of_matrix(const SquaredLeaf& leaf, const float (&g)[8], std::int64_t at, int count,
                                   float clip_factor) {
    std::int64_t row = at / leaf.columns, column = at - row * leaf.columns;
    float sum = 0, factor = clip_factor * leaf.row_factors[row];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (e >= count) break;
        if (column == leaf.columns) {
            column = 0;
            factor = clip_factor * leaf.row_factors[++row];
        }
        const float u = g[e] * factor * leaf.column_factors[column++];
        sum += u * u;
    }
    return sum;
}

/// The same for a vector, whose mean squares are updated first.
__device__ float squares_of_vector(const SquaredLeaf& leaf, const float (&g)[8], std::int64_t at, int count,
                                   float clip_factor, Shares shares, float eps, bool skips) {
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (e >= count) break;
        const float clipped = g[e] * clip_factor, square = clipped * clipped;
        const float mean = shares.mean(leaf.means[at + e], square + eps);
        if (!skips) leaf.means[at + e] = mean;
        sum += square / mean;
    }
    return sum;
}

__global__ void __launch_bounds__(chunk_threads)
    square_updates(const LeafChunks<SquaredLeaf> leaves, const float* scalars, float eps, double* of_chunk) {
    const Chunk chunk = leaves.chunk();
    const SquaredLeaf leaf = leaves.rows[chunk.leaf];
    const auto dtype = static_cast<DType>(leaf.type);
    const float clip_factor = scalars[StepScalar::clip_factor];
    const Shares shares(scalars);
    const bool skips = scalars[StepScalar::skips] != 0;
    const bool wide = reinterpret_cast<std::uintptr_t>(leaf.gradient) % 16 == 0;
    double sum = 0;
    for_each_eight(chunk, [&](std::int64_t at, int count) {
        float g[8] = {};
        if (wide && count == 8) {
            to_floats_of<Any>(load_eight_of<Any>(leaf.gradient, dtype, at), dtype, g);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (e < count) g[e] = load_one_of(leaf.gradient, dtype, at + e);
        }
        sum +=
            static_cast<double>(leaf.means ? squares_of_vector(leaf, g, at, count, clip_factor, shares, eps, skips)
                                           : squares_of_matrix(leaf, g, at, count, clip_factor));
    });
    sum = block_sum(sum);
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
    square_updates<<<leaves.chunks(), chunk_threads, 0, launch.stream>>>(
        leaves, elements<const float>(op.scalars), op.eps, of_chunk);
    add_chunks<<<leaves.leaves, 256, 0, launch.stream>>>(leaves, of_chunk, of_leaf);
    add_leaves<<<ceil_div(leaves.leaves, 128), 128, 0, launch.stream>>>(leaves.rows, leaves.leaves, of_leaf);
    check_launch("adafactor_squares");
}

}  // namespace drover::cuda
