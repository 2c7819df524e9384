#pragma once

#include "backend/cuda/kernels/early_launch.cuh"

/// Sums over the rows of a matrix: the first kernel leaves `slices` rows of partial sums, each over rows that
/// depend on sizes alone; this adds them up.
namespace drover::cuda {

inline constexpr int columns_per_block = 32, summing_warps = 16;
/// Slices that a thread has in flight at once: so few threads compute the sums that each should rarely wait.
inline constexpr int slices_at_once = 9;

template <class Out>
__global__ void add_slices(const float* slices, std::int64_t count, std::int64_t columns, Out* out,
                           bool accumulate) {
    __shared__ float of_warp[summing_warps][columns_per_block];
    const std::int64_t column = std::int64_t{blockIdx.x} * columns_per_block + threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float sum = 0;
    wait_for_earlier_kernels();
    if (column < columns)
        for (std::int64_t first = warp; first < count; first += summing_warps * slices_at_once) {
            float loaded[slices_at_once] = {};
#pragma unroll
            for (int i = 0; i < slices_at_once; ++i)
                if (first + i * summing_warps < count)
                    loaded[i] = slices[(first + i * summing_warps) * columns + column];
#pragma unroll
            for (int i = 0; i < slices_at_once; ++i) sum += loaded[i];
        }
    of_warp[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp > 0 || column >= columns) return;
    for (int i = 1; i < summing_warps; ++i) sum += of_warp[i][threadIdx.x];
    out[column] = from_float<Out>(accumulate ? to_float(out[column]) + sum : sum);
}

/// out[c] (+)= Σ slices[·][c], rounded once.
inline void sum_slices_of_columns(const Launch& launch, const float* slices, std::int64_t count,
                                  const Tensor& out, bool accumulate) {
    const std::int64_t columns = out.size(0);
    with_floating(out.dtype(), [&]<class Out>() {
        launch_early("sum of columns", launch, add_slices<Out>,
                     static_cast<unsigned>(ceil_div(columns, columns_per_block)), 32 * summing_warps, 0,
                     slices, count, columns, elements<Out>(out), accumulate);
    });
}

}  // namespace drover::cuda
