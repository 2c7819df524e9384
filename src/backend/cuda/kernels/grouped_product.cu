#include "backend/cuda/kernels/grouped_product.h"
#include "backend/cuda/kernels/grouped_tiles.cuh"

// Where groups are summed over (weight gradients), the tensor is described with a third dimension that
// overlaps the second, so that the copy engine itself cuts a box at the group's end and fills with zeros: see
// ragged_rows().

namespace drover::cuda {
namespace {

using namespace grouped;
using Use = GroupedGemm::Use;

constexpr int depth = step_bytes / 2;  // of a step

template <Use use, class T, class Result>
struct HalfProduct {
    using Out = Result;
    static constexpr Summed summed = use == Use::weight_gradient ? Summed::rows : Summed::depth;
    static constexpr int depth = drover::cuda::depth;
    /// Only weight gradients are added to what is there.
    static constexpr bool adds = use == Use::weight_gradient;
    static constexpr Contiguous contiguous_a = adds ? Contiguous::breadth : Contiguous::depth;
    static constexpr Contiguous contiguous_b = use == Use::forward ? Contiguous::depth : Contiguous::breadth;

    __device__ void load(const CUtensorMap& a, const CUtensorMap& b, const Tile& tile, int step,
                         unsigned char* a_to, unsigned char* b_to, std::uint64_t* full) const {
        const int at = step * depth;
        if constexpr (use == Use::weight_gradient) {
            const int y = min(depth, tile.rows - at) - depth, z = tile.group_begin + at;
#pragma unroll
            for (int i = 0; i < tile_rows / 64; ++i)
                load_box(a_to + i * block_bytes, a, tile.row + 64 * i, y, z, full);
#pragma unroll
            for (int i = 0; i < tile_columns / 64; ++i)
                load_box(b_to + i * block_bytes, b, tile.column + 64 * i, y, z, full);
        } else {
            load_box(a_to, a, at, tile.group_begin + tile.row, 0, full);
            if constexpr (use == Use::forward) {
                load_box(b_to, b, at, tile.column, tile.expert, full);
            } else {
#pragma unroll
                for (int i = 0; i < tile_columns / 64; ++i)
                    load_box(b_to + i * block_bytes, b, tile.column + 64 * i, at, tile.expert, full);
            }
        }
    }

    __device__ void sum(float (&sum)[128], Ring& ring, const Tile& tile, int own_block) const {
        sum_steps<contiguous_a, contiguous_b>(
            sum, ring, tile.steps, own_block,
            [](float(&to)[128], std::uint64_t a, std::uint64_t b, bool add) {
                multiply_64_256_16<T, contiguous_a, contiguous_b>(to, a, b, add);
            });
    }
};

template <Use use, class T, class Out>
__global__ void __launch_bounds__(threads, 1)
    multiply_halves(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                    const Problem problem) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    multiply_groups(a, b, problem, HalfProduct<use, T, Out>{});
#endif
}

/// Rows that are cut at any row: box (x, n − depth, r) is depth − n rows of zeros, which lie before the start
/// of the second dimension, and then rows r to r + n. The second and the third dimension both advance by one
/// row.
TensorMapShape ragged_rows(const Tensor& rows) {
    TensorMapShape shape = plain_rows(rows, depth);
    shape.sizes = {rows.size(1), depth, rows.size(0)};
    return shape;
}

template <Use use, class T, class Out>
void launch_product(const Launch& launch, const GroupedGemm& op) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    constexpr bool makes_weights = use == Use::weight_gradient;
    const CUtensorMap a =
        make_tensor_map(op.a.dtype(), makes_weights ? ragged_rows(op.a) : plain_rows(op.a, tile_rows));
    const CUtensorMap b = make_tensor_map(
        op.b.dtype(), makes_weights ? ragged_rows(op.b)
                                    : matrices(op.b, experts, use == Use::forward ? tile_columns : depth));
    const Problem problem = problem_of(op.a, op.c, op.offsets, op.accumulate);
    const std::int64_t row_blocks = makes_weights ? experts * ceil_div(problem.height, tile_rows)
                                                  : ceil_div(op.a.size(0), tile_rows) + experts;
    launch_tiles(launch, multiply_halves<use, T, Out>, problem, row_blocks, a, b, problem);
}

}  // namespace

bool grouped_product_takes(const Launch& launch, const GroupedGemm& op) {
    const bool adds = op.accumulate && op.use != Use::weight_gradient;
    return !adds && op.a.dtype() != DType::f32 &&
           (op.c.dtype() == op.a.dtype() || op.c.dtype() == DType::f32) && result_fits(op.a) &&
           result_fits(op.b) && result_fits(op.c) && tiles_fit(op.c, op.offsets.size(0) - 1) &&
           kernels_run(launch);
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
