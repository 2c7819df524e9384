#pragma once

#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/tile_results.cuh"

/// Products of groups of rows in tiles of 128 × 256 results, on Hopper. One block computes a tile's sums from
/// beginning to end, so their order does not depend on which block it is. One thread keeps the copy engine
/// busy; two warpgroups multiply, 64 rows each. The blocks are persistent and go through the tiles of all
/// groups.
///
/// Groups may end at any row. Where rows are rows of the result, a tile runs into the next group and does not
/// store what it computes there.
namespace drover::cuda::grouped {

constexpr int tile_rows = 128, tile_columns = 256;
constexpr int stages = 4;
constexpr int multiplying_groups = 2;
constexpr int threads = 128 * (1 + multiplying_groups);
/// Bytes that an operand is deep in a step: four products.
constexpr int step_bytes = 128, products_of_step = 4;
/// 64 rows of 128 bytes, the unit in which operands are laid out.
constexpr int block_bytes = 64 * step_bytes;
constexpr int a_bytes = tile_rows / 64 * block_bytes, b_bytes = tile_columns / 64 * block_bytes;
constexpr int stage_bytes = a_bytes + b_bytes;
/// Columns of tiles that are processed together, so that the region that all blocks read at a time is about
/// square and mostly in the cache.
constexpr int strip = 8;
constexpr int most_experts = 1024;
/// Of shared memory: the steps' operands, aligned to 1024 bytes, and at most the barriers and the experts'
/// tables.
constexpr int dynamic_bytes = stages * stage_bytes + 1024;
constexpr int static_bytes = 2 * stages * 8 + 2 * (most_experts + 1) * 4;

struct Problem {
    const std::int32_t* offsets;
    int experts;
    int height;   ///< of a weight gradient's matrix
    int columns;  ///< of the result
    int depth;    ///< of the sums; of a weight gradient it is the group's rows
    void* c;
    std::int64_t stride;
    bool accumulate;
};

/// What a group's sums run over: the operands' depth; or, of a weight gradient, its rows, which begin where
/// those of the group before end, or at the next multiple of a step.
enum class Summed { depth, rows, aligned_rows };

/// A tile of the result, and the range that it is summed over.
struct Tile {
    int expert;
    int row, column;        ///< of its group's result
    int group_begin, rows;  ///< of the group
    int steps;
};

__device__ inline int ceil_of(int a, int b) {
    return (a + b - 1) / b;
}

/// `depth`: elements of a step.
template <Summed summed, int depth>
struct TileOrder {
    static constexpr bool makes_weights = summed != Summed::depth;

    const Problem& problem;
    /// Of each expert, and one past the last; in shared memory.
    const std::int32_t* first_tile;
    const std::int32_t* first_step;  ///< the same; of aligned rows alone

    __device__ int row_blocks(int rows) const {
        return ceil_of(makes_weights ? problem.height : rows, tile_rows);
    }
    __device__ int column_blocks() const { return ceil_of(problem.columns, tile_columns); }
    __device__ int tiles() const { return first_tile[problem.experts]; }

    __device__ int tiles_of(int rows) const {
        if (makes_weights && rows == 0 && problem.accumulate) return 0;
        return row_blocks(rows) * column_blocks();
    }

    __device__ Tile operator[](int index) const {
        int expert = 0;
        for (int end = problem.experts; end - expert > 1;) {
            const int middle = (expert + end) / 2;
            (first_tile[middle] <= index ? expert : end) = middle;
        }
        Tile tile{.expert = expert, .group_begin = problem.offsets[expert]};
        tile.rows = problem.offsets[expert + 1] - tile.group_begin;
        if constexpr (summed == Summed::aligned_rows) tile.group_begin = first_step[expert] * depth;
        const int of_strip = row_blocks(tile.rows) * strip, within = index - first_tile[expert];
        const int first_column = within / of_strip * strip;
        const int width = min(strip, column_blocks() - first_column), rest = within % of_strip;
        tile.row = rest / width * tile_rows;
        tile.column = (first_column + rest % width) * tile_columns;
        tile.steps = ceil_of(makes_weights ? tile.rows : problem.depth, depth);
        return tile;
    }
};

/// before[e] = Σ of(rows of an expert) over the experts before e, by one warp.
template <class Of>
__device__ void sum_before(const Problem& problem, std::int32_t* before, const Of& of) {
    const int lane = threadIdx.x % 32;
    int sum = 0;
    for (int first = 0; first < problem.experts; first += 32) {
        const int expert = first + lane;
        int own = 0;
        if (expert < problem.experts) own = of(problem.offsets[expert + 1] - problem.offsets[expert]);
        const int up_to_here = warp_sum_up_to_here(own);
        if (expert < problem.experts) before[expert] = sum + up_to_here - own;
        sum += __shfl_sync(0xFFFFFFFFu, up_to_here, 31);
    }
    if (lane == 0) before[problem.experts] = sum;
}

/// Rounds a warpgroup's 64 × 256 results and stores those that are in the matrix of `rows` × `columns` that
/// begins at `c`; `row` and `column` are those of the first. Columns are a multiple of 8.
template <class Out>
__device__ void store_results(float (&sum)[128], Out* c, std::int64_t stride, int row, int column, int rows,
                              int columns, bool accumulate) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int here = row + warp * 16 + lane / 4 + half * 8;
        const bool in_rows = here < rows;
        Out* const line = c + here * stride + column;
        const int left = columns - column;  // from the tile's first column
        if (accumulate) {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int at = 8 * i + 2 * (lane % 4);
                if (!in_rows || at >= left) continue;
                const Pair<Out> before = *reinterpret_cast<const Pair<Out>*>(line + at);
                sum[4 * i + 2 * half] += to_float(before.element[0]);
                sum[4 * i + 2 * half + 1] += to_float(before.element[1]);
            }
        }
        if constexpr (sizeof(Out) == 4) {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int at = 8 * i + 2 * (lane % 4);
                if (in_rows && at < left)
                    *reinterpret_cast<Pair<float>*>(line + at) = {sum[4 * i + 2 * half],
                                                                  sum[4 * i + 2 * half + 1]};
            }
        } else {
            store_rounded<256>(sum, half, line, in_rows ? left : 0);
        }
    }
}

/// The operands of the steps that follow, in shared memory.
struct Ring {
    unsigned char* buffers;
    std::uint64_t *full, *empty;
    RingPlace<stages> place{};

    __device__ unsigned char* a() const { return buffers + place.stage * stage_bytes; }
    __device__ unsigned char* b() const { return a() + a_bytes; }
    __device__ void wait_until_full() const { barrier_wait(&full[place.stage], place.parity); }
    /// By every warp that multiplies.
    __device__ void release(int stage) const {
        if (threadIdx.x % 32 == 0) barrier_arrive(&empty[stage]);
    }
};

/// Sums up a tile's steps, of which the ring has the operands; `own_block` is that of this warpgroup's rows.
/// multiply(sum, a, b, add) is one product.
template <Contiguous contiguous_a, Contiguous contiguous_b, class Multiply>
__device__ void sum_steps(float (&sum)[128], Ring& ring, int steps, int own_block, const Multiply& multiply) {
    int previous = 0;
    for (int step = 0; step < steps; ++step, ring.place.next()) {
        const std::uint64_t a = operand_at<contiguous_a>(ring.a() + own_block * block_bytes, block_bytes);
        const std::uint64_t b = operand_at<contiguous_b>(ring.b(), block_bytes);
        ring.wait_until_full();
        products_begin();
#pragma unroll
        for (int i = 0; i < products_of_step; ++i)
            multiply(sum, a + i * product_step<contiguous_a>, b + i * product_step<contiguous_b>,
                     step + i > 0);
        products_commit();
        products_wait<1>();
        if (step > 0) ring.release(previous);
        previous = ring.place.stage;
    }
    products_wait<0>();
    products_are_in(sum);
    if (steps > 0) ring.release(previous);
}

/// The whole of a kernel. A Product has the constants `summed` and `depth` (elements of a step), the type Out
/// of results, `adds` where results may be added to what is there, and
///   load(a, b, tile, step, a_to, b_to, full): brings both operands of a step into shared memory
///   sum(sum, ring, tile, own_block): sums up a tile's steps
template <class Product>
__device__ void multiply_groups(const CUtensorMap& a, const CUtensorMap& b, const Problem& problem,
                                const Product& product) {
    __shared__ std::uint64_t full[stages], empty[stages];
    __shared__ std::int32_t first_tile[most_experts + 1];
    constexpr bool aligned = Product::summed == Summed::aligned_rows;
    __shared__ std::int32_t first_step[aligned ? most_experts + 1 : 1];
    unsigned char* const buffers = aligned_shared_memory();
    const TileOrder<Product::summed, Product::depth> order{problem, first_tile, first_step};
    if (threadIdx.x < 32) sum_before(problem, first_tile, [&](int rows) { return order.tiles_of(rows); });
    if (aligned && threadIdx.x / 32 == 1)
        sum_before(problem, first_step, [](int rows) { return ceil_of(rows, Product::depth); });
    if (threadIdx.x == 64) {
        prefetch_map(a);
        prefetch_map(b);
        for (int i = 0; i < stages; ++i) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 4 * multiplying_groups);
        }
        barrier_init_fence();
    }
    __syncthreads();

    Ring ring{buffers, full, empty};
    const int group = threadIdx.x / 128;
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x > 0) return;
        for (int index = blockIdx.x; index < order.tiles(); index += gridDim.x) {
            const Tile tile = order[index];
            for (int step = 0; step < tile.steps; ++step, ring.place.next()) {
                const int stage = ring.place.stage;
                barrier_wait(&empty[stage], ring.place.parity ^ 1);
                barrier_arrive_expecting(&full[stage], stage_bytes);
                product.load(a, b, tile, step, ring.a(), ring.b(), &full[stage]);
            }
        }
        return;
    }

    take_registers<232>();
    using Out = typename Product::Out;
    constexpr bool makes_weights = Product::summed != Summed::depth;
    const int own_block = group - 1;
    for (int index = blockIdx.x; index < order.tiles(); index += gridDim.x) {
        const Tile tile = order[index];
        float sum[128];
        if (tile.steps == 0) {
#pragma unroll
            for (int i = 0; i < 128; ++i) sum[i] = 0;
        }
        product.sum(sum, ring, tile, own_block);
        const std::int64_t first_row =
            makes_weights ? std::int64_t{tile.expert} * problem.height : tile.group_begin;
        store_results(sum, static_cast<Out*>(problem.c) + first_row * problem.stride, problem.stride,
                      tile.row + own_block * 64, tile.column, makes_weights ? problem.height : tile.rows,
                      problem.columns, Product::adds && problem.accumulate);
    }
}

// ------------------------------------------------------------------------------------------------------ host

/// Whether the GPU has the instructions and the memory, and the code that runs on it is for them. Without,
/// the kernels are empty.
inline bool kernels_run(const Launch& launch) {
    return launch.gpu.code.hopper_products && shared_memory_fits(launch, dynamic_bytes + static_bytes);
}

/// Indices within a group are 32 bits wide.
inline constexpr std::int64_t most_rows = std::int64_t{1} << 30;

/// Whether the tiles of a result can be counted.
inline bool tiles_fit(const Tensor& c, std::int64_t experts) {
    const std::int64_t blocks = ceil_div(c.size(0), tile_rows) + experts;
    return experts <= most_experts && blocks * ceil_div(c.size(1), tile_columns) < most_rows;
}

/// Whether tiles of a result can be stored there.
inline bool result_fits(const Tensor& c) {
    return packs_fit<bfloat_t>(c.raw(), c.size(1), c.stride(0)) && c.size(0) > 0 && c.size(0) < most_rows &&
           c.size(1) < most_rows;
}

inline Problem problem_of(const Tensor& a, const Tensor& c, const Tensor& offsets, bool accumulate) {
    const std::int64_t experts = offsets.size(0) - 1;
    return {.offsets = elements<const std::int32_t>(offsets),
            .experts = static_cast<int>(experts),
            .height = static_cast<int>(c.size(0) / experts),
            .columns = static_cast<int>(c.size(1)),
            .depth = static_cast<int>(a.size(1)),
            .c = c.raw(),
            .stride = c.stride(0),
            .accumulate = accumulate};
}

/// Rows of a matrix, in boxes of a step × `box_rows`.
inline TensorMapShape plain_rows(const Tensor& rows, int box_rows) {
    const auto element = static_cast<std::int64_t>(size_of(rows.dtype()));
    return {.start = rows.raw(),
            .sizes = {rows.size(1), rows.size(0), 1},
            .byte_strides = {rows.stride(0) * element, rows.stride(0) * element},
            .box = {step_bytes / element, box_rows}};
}

/// The experts' matrices, in such boxes.
inline TensorMapShape matrices(const Tensor& stacked, std::int64_t experts, int box_rows) {
    TensorMapShape shape = plain_rows(stacked, box_rows);
    const std::int64_t height = stacked.size(0) / experts;
    shape.sizes = {stacked.size(1), height, experts};
    shape.byte_strides[1] = height * shape.byte_strides[0];
    return shape;
}

/// Launches a kernel over at most `row_blocks` rows of tiles.
template <class... Parameters, class... Arguments>
void launch_tiles(const Launch& launch, void (*kernel)(Parameters...), const Problem& problem,
                  std::int64_t row_blocks, const Arguments&... arguments) {
    const std::int64_t most_tiles = row_blocks * ceil_div(problem.columns, tile_columns);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(most_tiles, launch.gpu.multiprocessors));
    reserve_shared_memory(kernel, dynamic_bytes, "a grouped product");
    kernel<<<blocks, threads, dynamic_bytes, launch.stream>>>(arguments...);
    check_launch("a grouped product");
}

}  // namespace drover::cuda::grouped
