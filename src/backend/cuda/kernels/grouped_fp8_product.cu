#include "backend/cuda/kernels/grouped_fp8_product.h"
#include "backend/cuda/kernels/grouped_tiles.cuh"

// Both operands are contiguous in what is summed over. Where that is a group's rows (weight gradients), these
// begin at multiples of a step and are filled up with zeros, so a box has rows of one group alone.
//
// The matrix unit's sums have some 13 bits of mantissa. Unless that is enough, the products of each step are
// summed apart, in two halves of the columns because of the registers, and added to the tile's sums in fp32.

namespace drover::cuda {
namespace {

using namespace grouped;
using Use = GroupedFp8Gemm::Use;

constexpr int depth = step_bytes;  // of a step
static_assert(depth == expert_alignment);

template <bool sums_rows, bool fast, class Result>
struct Fp8Product {
    using Out = Result;
    static constexpr Summed summed = sums_rows ? Summed::aligned_rows : Summed::depth;
    static constexpr int depth = drover::cuda::depth;
    static constexpr bool adds = true;

    const float *scale_a, *scale_b;

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
        constexpr int half_columns = tile_columns / 2;
#pragma unroll
        for (int i = 0; i < 128; ++i) sum[i] = 0;
        for (int step = 0; step < steps; ++step, ring.place.next()) {
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
#pragma unroll
                for (int i = 0; i < 64; ++i) sum[64 * half + i] += part[i];
            }
        }
    }
};

template <bool sums_rows, bool fast, class Out>
__global__ void __launch_bounds__(threads, 1)
    multiply_fp8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const Problem problem, const float* scale_a, const float* scale_b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    multiply_groups(a, b, problem, Fp8Product<sums_rows, fast, Out>{scale_a, scale_b});
#endif
}

template <bool sums_rows, bool fast, class Out>
void launch_product(const Launch& launch, const GroupedFp8Gemm& op) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    const CUtensorMap a = make_tensor_map(DType::f8, plain_rows(op.a, tile_rows));
    const CUtensorMap b = make_tensor_map(
        DType::f8, sums_rows ? plain_rows(op.b, tile_columns) : matrices(op.b, experts, tile_columns));
    const Problem problem = problem_of(op.a, op.c, op.offsets, op.accumulate);
    const std::int64_t row_blocks = sums_rows ? experts * ceil_div(problem.height, tile_rows)
                                              : ceil_div(op.a.size(0), tile_rows) + experts;
    launch_tiles(launch, multiply_fp8<sums_rows, fast, Out>, problem, row_blocks, a, b, problem,
                 elements<const float>(op.scale_a), elements<const float>(op.scale_b));
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
            op.fast ? launch_product<true, true, Out>(launch, op)
                    : launch_product<true, false, Out>(launch, op);
        else
            op.fast ? launch_product<false, true, Out>(launch, op)
                    : launch_product<false, false, Out>(launch, op);
    });
}

}  // namespace drover::cuda
