#include <algorithm>

#include "backend/cuda/kernels/grouped_product.h"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/tensor_map.h"

// Tiles of 128 × 256 results. One block computes a tile's sums from beginning to end, so their order does not
// depend on which block it is. One thread keeps the copy engine busy; two warpgroups multiply, 64 rows each.
// The blocks are persistent and go through the tiles of all groups.
//
// Groups may end at any row. Where rows are rows of the result, a tile runs into the next group and does not
// store what it computes there. Where they are summed over (weight gradients), the tensor is described with a
// third dimension that overlaps the second, so that the copy engine itself cuts a box at the group's end and
// fills with zeros: see ragged_rows().

namespace drover::cuda {
namespace {

using Use = GroupedGemm::Use;

constexpr int tile_rows = 128, tile_columns = 256, depth = 64;  // of a step
constexpr int stages = 4;
constexpr int multiplying_groups = 2;
constexpr int threads = 128 * (1 + multiplying_groups);
/// 64 rows of 128 bytes, the unit in which operands are laid out.
constexpr int block_bytes = 64 * 128;
constexpr int a_bytes = tile_rows / 64 * block_bytes, b_bytes = tile_columns / 64 * block_bytes;
constexpr int stage_bytes = a_bytes + b_bytes;
/// Columns of tiles that are processed together, so that the region that all blocks read at a time is about
/// square and mostly in the cache.
constexpr int strip = 8;
constexpr int most_experts = 1024;

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

template <Use use>
struct TileOrder {
    const Problem& problem;
    const std::int32_t* first_tile;  ///< of each expert, and one past the last; in shared memory

    __device__ int row_blocks(int rows) const {
        return ceil_of(use == Use::weight_gradient ? problem.height : rows, tile_rows);
    }
    __device__ int column_blocks() const { return ceil_of(problem.columns, tile_columns); }
    __device__ int tiles() const { return first_tile[problem.experts]; }

    __device__ int tiles_of(int rows) const {
        if (use == Use::weight_gradient && rows == 0 && problem.accumulate) return 0;
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
        const int of_strip = row_blocks(tile.rows) * strip, within = index - first_tile[expert];
        const int first_column = within / of_strip * strip;
        const int width = min(strip, column_blocks() - first_column), rest = within % of_strip;
        tile.row = rest / width * tile_rows;
        tile.column = (first_column + rest % width) * tile_columns;
        tile.steps = ceil_of(use == Use::weight_gradient ? tile.rows : problem.depth, depth);
        return tile;
    }
};

/// first_tile[e] = the tiles of the experts before e, by the first warp.
template <Use use>
__device__ void count_tiles(const TileOrder<use>& order, std::int32_t* first_tile) {
    const Problem& problem = order.problem;
    const int lane = threadIdx.x;
    int before = 0;
    for (int first = 0; first < problem.experts; first += 32) {
        const int expert = first + lane;
        int own = 0;
        if (expert < problem.experts)
            own = order.tiles_of(problem.offsets[expert + 1] - problem.offsets[expert]);
        int sum = own;
        for (int distance = 1; distance < 32; distance *= 2) {
            const int lower = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
            if (lane >= distance) sum += lower;
        }
        if (expert < problem.experts) first_tile[expert] = before + sum - own;
        before += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
    if (lane == 0) first_tile[problem.experts] = before;
}

/// Brings both operands of a step into shared memory.
template <Use use>
__device__ void load_step(const CUtensorMap& a, const CUtensorMap& b, const Tile& tile, int step,
                          unsigned char* to, std::uint64_t* full) {
    unsigned char* const b_to = to + a_bytes;
    const int at = step * depth;
    if constexpr (use == Use::weight_gradient) {
        const int y = min(depth, tile.rows - at) - depth, z = tile.group_begin + at;
#pragma unroll
        for (int i = 0; i < tile_rows / 64; ++i)
            load_box(to + i * block_bytes, a, tile.row + 64 * i, y, z, full);
#pragma unroll
        for (int i = 0; i < tile_columns / 64; ++i)
            load_box(b_to + i * block_bytes, b, tile.column + 64 * i, y, z, full);
    } else {
        load_box(to, a, at, tile.group_begin + tile.row, 0, full);
        if constexpr (use == Use::forward) {
            load_box(b_to, b, at, tile.column, tile.expert, full);
        } else {
#pragma unroll
            for (int i = 0; i < tile_columns / 64; ++i)
                load_box(b_to + i * block_bytes, b, tile.column + 64 * i, at, tile.expert, full);
        }
    }
}

/// The words of four neighbouring lanes exchanged: lane t gets word t of all four, in their order.
__device__ inline void exchange_in_four(std::uint32_t (&word)[4]) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
        const bool upper = lane & bit;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? word[i] : word[i | bit], bit);
            word[i] = upper ? got : word[i];
            word[i | bit] = upper ? word[i | bit] : got;
        }
    }
}

/// Two neighbours in a row, read and written at once.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T element[2];
};

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
#pragma unroll
            for (int four = 0; four < 8; ++four) {
                std::uint32_t word[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int at = 4 * (4 * four + i) + 2 * half;
                    word[i] = __builtin_bit_cast(
                        std::uint32_t, Pair<Out>{from_float<Out>(sum[at]), from_float<Out>(sum[at + 1])});
                }
                exchange_in_four(word);
                const int at = 32 * four + 8 * (lane % 4);
                if (in_rows && at < left)
                    *reinterpret_cast<uint4*>(line + at) = make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
    }
}

template <Use use, class T, class Out>
__global__ void __launch_bounds__(threads, 1)
    multiply_groups(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                    const Problem problem) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char memory[];
    __shared__ std::uint64_t full[stages], empty[stages];
    __shared__ std::int32_t first_tile[most_experts + 1];
    unsigned char* const buffers = memory + (1024 - shared_address(memory) % 1024) % 1024;
    const TileOrder<use> order{problem, first_tile};
    if (threadIdx.x < 32) count_tiles(order, first_tile);
    if (threadIdx.x == 32) {
        prefetch_map(a);
        prefetch_map(b);
        for (int i = 0; i < stages; ++i) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 4 * multiplying_groups);
        }
        barrier_init_fence();
    }
    __syncthreads();

    RingPlace<stages> place;
    const int group = threadIdx.x / 128;
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x > 0) return;
        for (int index = blockIdx.x; index < order.tiles(); index += gridDim.x) {
            const Tile tile = order[index];
            for (int step = 0; step < tile.steps; ++step, place.next()) {
                barrier_wait(&empty[place.stage], place.parity ^ 1);
                barrier_arrive_expecting(&full[place.stage], stage_bytes);
                load_step<use>(a, b, tile, step, buffers + place.stage * stage_bytes, &full[place.stage]);
            }
        }
        return;
    }

    take_registers<232>();
    constexpr Contiguous contiguous_a = use == Use::weight_gradient ? Contiguous::breadth : Contiguous::depth;
    constexpr Contiguous contiguous_b = use == Use::forward ? Contiguous::depth : Contiguous::breadth;
    const int own_rows = (group - 1) * 64;
    const auto release = [&](int stage) {
        if (threadIdx.x % 32 == 0) barrier_arrive(&empty[stage]);
    };
    for (int index = blockIdx.x; index < order.tiles(); index += gridDim.x) {
        const Tile tile = order[index];
        float sum[128];
        if (tile.steps == 0) {
#pragma unroll
            for (int i = 0; i < 128; ++i) sum[i] = 0;
        }
        int previous = 0;
        for (int step = 0; step < tile.steps; ++step, place.next()) {
            const unsigned char* const a_here =
                buffers + place.stage * stage_bytes + (group - 1) * block_bytes;
            const std::uint64_t a_at = operand_at<contiguous_a>(a_here, block_bytes);
            const std::uint64_t b_at =
                operand_at<contiguous_b>(buffers + place.stage * stage_bytes + a_bytes, block_bytes);
            barrier_wait(&full[place.stage], place.parity);
            products_begin();
#pragma unroll
            for (int i = 0; i < depth / 16; ++i)
                multiply_64_256_16<T, contiguous_a, contiguous_b>(sum, a_at + i * depth_16_step<contiguous_a>,
                                                                  b_at + i * depth_16_step<contiguous_b>,
                                                                  step + i > 0);
            products_commit();
            products_wait<1>();
            if (step > 0) release(previous);
            previous = place.stage;
        }
        products_wait<0>();
        products_are_in(sum);
        if (tile.steps > 0) release(previous);

        constexpr bool makes_weights = use == Use::weight_gradient;
        const std::int64_t first_row =
            makes_weights ? std::int64_t{tile.expert} * problem.height : tile.group_begin;
        store_results(sum, static_cast<Out*>(problem.c) + first_row * problem.stride, problem.stride,
                      tile.row + own_rows, tile.column, makes_weights ? problem.height : tile.rows,
                      problem.columns, makes_weights && problem.accumulate);
    }
#endif
}

/// Rows that are cut at any row: box (x, n − depth, r) is depth − n rows of zeros, which lie before the start
/// of the second dimension, and then rows r to r + n. The second and the third dimension both advance by one
/// row.
TensorMapShape ragged_rows(const Tensor& rows) {
    const std::int64_t bytes = rows.stride(0) * static_cast<std::int64_t>(size_of(rows.dtype()));
    return {.start = rows.raw(),
            .sizes = {rows.size(1), depth, rows.size(0)},
            .byte_strides = {bytes, bytes},
            .box = {64, depth}};
}

TensorMapShape plain_rows(const Tensor& rows) {
    const std::int64_t bytes = rows.stride(0) * static_cast<std::int64_t>(size_of(rows.dtype()));
    return {.start = rows.raw(),
            .sizes = {rows.size(1), rows.size(0), 1},
            .byte_strides = {bytes, bytes},
            .box = {depth, tile_rows}};
}

TensorMapShape matrices(const Tensor& stacked, std::int64_t experts, int box_rows) {
    const std::int64_t bytes = stacked.stride(0) * static_cast<std::int64_t>(size_of(stacked.dtype()));
    const std::int64_t height = stacked.size(0) / experts;
    return {.start = stacked.raw(),
            .sizes = {stacked.size(1), height, experts},
            .byte_strides = {bytes, height * bytes},
            .box = {64, box_rows}};
}

template <Use use, class T, class Out>
void launch_product(const Launch& launch, const GroupedGemm& op) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    constexpr bool makes_weights = use == Use::weight_gradient;
    const CUtensorMap a = make_tensor_map(op.a.dtype(), makes_weights ? ragged_rows(op.a) : plain_rows(op.a));
    const CUtensorMap b = make_tensor_map(
        op.b.dtype(), makes_weights ? ragged_rows(op.b)
                                    : matrices(op.b, experts, use == Use::forward ? tile_columns : depth));
    const Problem problem{.offsets = elements<const std::int32_t>(op.offsets),
                          .experts = static_cast<int>(experts),
                          .height = static_cast<int>(op.c.size(0) / experts),
                          .columns = static_cast<int>(op.c.size(1)),
                          .depth = static_cast<int>(op.a.size(1)),
                          .c = op.c.raw(),
                          .stride = op.c.stride(0),
                          .accumulate = op.accumulate};
    const std::int64_t row_blocks = makes_weights ? experts * ceil_div(problem.height, tile_rows)
                                                  : ceil_div(op.a.size(0), tile_rows) + experts;
    const std::int64_t most_tiles = row_blocks * ceil_div(problem.columns, tile_columns);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(most_tiles, launch.multiprocessors));
    constexpr int shared = stages * stage_bytes + 1024;
    auto* kernel = multiply_groups<use, T, Out>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "a grouped product");
    kernel<<<blocks, threads, shared, launch.stream>>>(a, b, problem);
    check_launch("a grouped product");
}

bool is_hopper() {
#ifdef DROVER_HOPPER_CODE
    static const bool hopper = [] {
        int device = 0, major = 0, minor = 0;
        return cudaGetDevice(&device) == cudaSuccess &&
               cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
               cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
               major == 9 && minor == 0;
    }();
    return hopper;
#else
    return false;
#endif
}

}  // namespace

bool grouped_product_takes(const GroupedGemm& op) {
    constexpr std::int64_t most = std::int64_t{1} << 30;  // indices within a group are 32 bits wide
    const auto fits = [&](const Tensor& matrix) {
        return packs_fit<bfloat_t>(matrix.raw(), matrix.size(1), matrix.stride(0)) && matrix.size(0) > 0 &&
               matrix.size(0) < most && matrix.size(1) < most;
    };
    const std::int64_t experts = op.offsets.size(0) - 1;
    const std::int64_t tiles = ceil_div(op.c.size(0), tile_rows) + experts;
    // Only the code for weight gradients has registers to spare for adding.
    const bool adds = op.accumulate && op.use != Use::weight_gradient;
    return !adds && op.a.dtype() != DType::f32 && (op.c.dtype() == op.a.dtype() || op.c.dtype() == DType::f32) &&
           experts <= most_experts && fits(op.a) && fits(op.b) && fits(op.c) &&
           tiles * ceil_div(op.c.size(1), tile_columns) < most && is_hopper();
}

void grouped_product(const Launch& launch, const GroupedGemm& op) {
    const auto with_types = [&]<class T, class Out>() {
        switch (op.use) {
            case Use::forward:
                return launch_product<Use::forward, T, Out>(launch, op);
            case Use::data_gradient:
                return launch_product<Use::data_gradient, T, Out>(launch, op);
            case Use::weight_gradient:
                return launch_product<Use::weight_gradient, T, Out>(launch, op);
        }
    };
    const bool rounds = op.c.dtype() == op.a.dtype();
    if (op.a.dtype() == DType::bf16)
        rounds ? with_types.template operator()<bfloat_t, bfloat_t>()
               : with_types.template operator()<bfloat_t, float>();
    else
        rounds ? with_types.template operator()<half_t, half_t>()
               : with_types.template operator()<half_t, float>();
}

}  // namespace drover::cuda
