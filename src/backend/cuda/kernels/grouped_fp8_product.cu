#include "backend/cuda/kernels/grouped_fp8_product.h"
#include "backend/cuda/kernels/grouped_tiles.cuh"

// Both operands are contiguous in what is summed over. Where that is a group's rows (weight gradients), these
// begin at multiples of a step and are filled up with zeros, so a box has rows of one group alone.
//
// The matrix unit's sums have some 13 bits of mantissa. Unless that is enough, the products of each step are
// summed apart, in two halves of the columns because of the registers, and added to the tile's sums in fp32.
// A step is as deep as a block that has a scale, so that such sums are multiplied by their own two scales
// first.

namespace drover::cuda {
namespace {

using namespace grouped;
using Use = GroupedFp8Gemm::Use;

constexpr int depth = step_bytes;  // of a step
static_assert(depth == expert_alignment && depth == fp8_block);

/// What FP8 products have in common.
template <bool sums_rows, class Result>
struct Fp8Steps {
    using Out = Result;
    static constexpr Summed summed = sums_rows ? Summed::aligned_rows : Summed::depth;
    static constexpr int depth = drover::cuda::depth;
    static constexpr bool adds = true;

    __device__ void load(const CUtensorMap& a, const CUtensorMap& b, const Tile& tile, int step,
                         unsigned char* a_to, unsigned char* b_to, std::uint64_t* full) const {
        const int at = step * depth;
        if constexpr (sums_rows) {
            load_box(a_to, a, tile.group_begin + at, tile.row, 0, full);
            load_box(b_to, b, tile.group_begin + at, tile.column, 0, full);
        } else {
            load_box(a_to, a, at, tile.group_begin + tile.row, 0, full);
            load_box(b_to, b, at, tile.column, tile.expert, full);
        }
    }

    /// Calls add(half, part) with each half of a step's sums.
    template <class Add>
    __device__ static void sum_step_apart(Ring& ring, int own_block, const Add& add) {
        constexpr int half_columns = tile_columns / 2;
        const std::uint64_t a = operand_at<Contiguous::depth>(ring.a() + own_block * block_bytes, 0);
        ring.wait_until_full();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const std::uint64_t b =
                operand_at<Contiguous::depth>(ring.b() + half * half_columns * step_bytes, 0);
            float part[64];
            products_begin();
#pragma unroll
            for (int i = 0; i < products_of_step; ++i)
                multiply_64_128_32(part, a + i * product_step<Contiguous::depth>,
                                   b + i * product_step<Contiguous::depth>, i > 0);
            products_commit();
            products_wait<0>();
            products_are_in(part);
            if (half == 1) ring.release(ring.place.stage);
            add(half, part);
        }
    }
};

/// With one scale for each operand.
template <bool sums_rows, bool fast, class Result>
struct Fp8Product : Fp8Steps<sums_rows, Result> {
    const float *scale_a, *scale_b;

    __device__ Fp8Product(const float* of_a, const float* of_b) : scale_a(of_a), scale_b(of_b) {}

    __device__ void sum(float (&sum)[128], Ring& ring, const Tile& tile, int own_block) const {
        if constexpr (fast)
            sum_steps<Contiguous::depth, Contiguous::depth>(
                sum, ring, tile.steps, own_block,
                [](float(&to)[128], std::uint64_t a, std::uint64_t b, bool add) {
                    multiply_64_256_32(to, a, b, add);
                });
        else
            sum_steps_apart(sum, ring, tile.steps, own_block);
        const float scale = *scale_a * *scale_b;
#pragma unroll
        for (int i = 0; i < 128; ++i) sum[i] *= scale;
    }

    __device__ static void sum_steps_apart(float (&sum)[128], Ring& ring, int steps, int own_block) {
#pragma unroll
        for (int i = 0; i < 128; ++i) sum[i] = 0;
        for (int step = 0; step < steps; ++step, ring.place.next())
            Fp8Product::sum_step_apart(ring, own_block, [&](int half, const float(&part)[64]) {
#pragma unroll
                for (int i = 0; i < 64; ++i) sum[64 * half + i] += part[i];
            });
    }
};

/// Scales of an operand's blocks.
struct BlockScaleTable {
    const float* scales;
    std::int64_t pitch;
};

/// With scales of blocks: of rows, and of squares of the weights. The scales outside the matrices, whose
/// results are not stored, count as zero.
template <bool sums_rows, class Result>
struct BlockFp8Product : Fp8Steps<sums_rows, Result> {
    BlockScaleTable of_a, of_b;
    int height, columns;  ///< of an expert's result, where it is a weight's gradient; of every result

    __device__ BlockFp8Product(const BlockScaleTable& a, const BlockScaleTable& b, const Problem& problem)
        : of_a(a), of_b(b), height(problem.height), columns(problem.columns) {}

    __device__ static float scale_at(const BlockScaleTable& table, std::int64_t row, std::int64_t column) {
        return table.scales[row * table.pitch + column];
    }

    __device__ void sum(float (&sum)[128], Ring& ring, const Tile& tile, int own_block) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        const int row = tile.row + own_block * 64 + warp * 16 + lane / 4,
                  rows = sums_rows ? height : tile.rows;
        const std::int64_t first_row = sums_rows ? 0 : tile.group_begin,
                           first_block = sums_rows ? tile.group_begin / depth : 0,
                           first_square = std::int64_t{tile.expert} * ceil_of(columns, depth);
#pragma unroll
        for (int i = 0; i < 128; ++i) sum[i] = 0;
        for (int step = 0; step < tile.steps; ++step, ring.place.next()) {
            const std::int64_t block = first_block + step;
            float scale_a[2];
#pragma unroll
            for (int h = 0; h < 2; ++h)
                scale_a[h] = row + 8 * h < rows ? scale_at(of_a, block, first_row + row + 8 * h) : 0;
            this->sum_step_apart(ring, own_block, [&](int half, const float(&part)[64]) {
                const int column = tile.column + half * depth;
                float square = 0;
                if constexpr (!sums_rows)
                    if (column < columns) square = scale_at(of_b, first_square + column / depth, block);
#pragma unroll
                for (int eight = 0; eight < 16; ++eight) {
                    const int at = column + 8 * eight + 2 * (lane % 4);
                    float2 scale_b = make_float2(square, square);
                    if constexpr (sums_rows)
                        if (at < columns)
                            scale_b = *reinterpret_cast<const float2*>(of_b.scales + block * of_b.pitch + at);
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const int i = 4 * eight + 2 * h;
                        float* const to = sum + 64 * half + i;
                        to[0] += part[i] * scale_a[h] * scale_b.x;
                        to[1] += part[i + 1] * scale_a[h] * scale_b.y;
                    }
                }
            });
        }
    }
};

template <bool sums_rows, bool fast, class Out>
__global__ void __launch_bounds__(threads, 1)
    multiply_fp8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const Problem problem, const float* scale_a, const float* scale_b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    multiply_groups(a, b, problem, Fp8Product<sums_rows, fast, Out>(scale_a, scale_b));
#endif
}

template <bool sums_rows, class Out>
__global__ void __launch_bounds__(threads, 1)
    multiply_block_fp8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                       const Problem problem, const BlockScaleTable of_a, const BlockScaleTable of_b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    multiply_groups(a, b, problem, BlockFp8Product<sums_rows, Out>(of_a, of_b, problem));
#endif
}

/// Launches a kernel that takes the operands, the problem, and these.
template <bool sums_rows, class... Parameters, class... Arguments>
void launch_product(const Launch& launch, const GroupedFp8Gemm& op, void (*kernel)(Parameters...),
                    const Arguments&... arguments) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    const CUtensorMap a = make_tensor_map(DType::f8, plain_rows(op.a, tile_rows));
    const CUtensorMap b = make_tensor_map(
        DType::f8, sums_rows ? plain_rows(op.b, tile_columns) : matrices(op.b, experts, tile_columns));
    const Problem problem = problem_of(op.a, op.c, op.offsets, op.accumulate);
    const std::int64_t row_blocks = sums_rows ? experts * ceil_div(problem.height, tile_rows)
                                              : ceil_div(op.a.size(0), tile_rows) + experts;
    launch_tiles(launch, kernel, problem, row_blocks, a, b, problem, arguments...);
}

template <bool sums_rows, class Out>
void launch_product(const Launch& launch, const GroupedFp8Gemm& op) {
    const auto *of_a = elements<const float>(op.scale_a), *of_b = elements<const float>(op.scale_b);
    if (op.scales_a != Fp8Scales::one)
        launch_product<sums_rows>(launch, op, multiply_block_fp8<sums_rows, Out>,
                                  BlockScaleTable{of_a, op.scale_a.size(1)},
                                  BlockScaleTable{of_b, op.scale_b.size(1)});
    else
        launch_product<sums_rows>(
            launch, op, op.fast ? multiply_fp8<sums_rows, true, Out> : multiply_fp8<sums_rows, false, Out>,
            of_a, of_b);
}

}  // namespace

bool grouped_fp8_product_takes(const Launch& launch, const GroupedFp8Gemm& op) {
    const auto fits = [](const Tensor& matrix) {
        return reinterpret_cast<std::uintptr_t>(matrix.raw()) % 16 == 0 && matrix.size(1) % 16 == 0 &&
               matrix.size(0) > 0 && matrix.size(1) > 0 && matrix.size(0) < most_rows &&
               matrix.size(1) < most_rows;
    };
    return fits(op.a) && fits(op.b) && result_fits(op.c) && tiles_fit(op.c, op.offsets.size(0) - 1) &&
           kernels_run(launch);
}

void grouped_fp8_product(const Launch& launch, const GroupedFp8Gemm& op) {
    with_floating(op.c.dtype(), [&]<class Out>() {
        if (op.use == Use::weight_gradient)
            launch_product<true, Out>(launch, op);
        else
            launch_product<false, Out>(launch, op);
    });
}

}  // namespace drover::cuda
