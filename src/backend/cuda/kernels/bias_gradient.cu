#include <algorithm>

#include "backend/cuda/kernels/column_sums.cuh"
#include "backend/cuda/kernels/eight_elements.cuh"

namespace drover::cuda {
namespace {

constexpr int bias_warps = 8, columns_of_block = 32 * 8;
/// Rows that one warp has in flight at once.
constexpr int bias_unrolled = 4;

/// Lane l has columns 8l … 8l + 7 of the block's, or, where rows are not aligned, l, l + 32, …
template <class T, bool wide>
__device__ void load_columns(const T* row, std::int64_t columns, Eight<T>& loaded) {
    const int lane = threadIdx.x % 32;
    if constexpr (wide) {
        if (8 * lane < columns) loaded = load_eight_streaming(row + 8 * lane);
    } else {
        T* single = reinterpret_cast<T*>(&loaded);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (lane + 32 * i < columns) single[i] = row[lane + 32 * i];
    }
}

template <class T, bool wide>
__global__ void sum_rows(const T* dy, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                         std::int64_t rows_of_slice, float* slices) {
    __shared__ float of_warp[bias_warps][columns_of_block];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::int64_t first_column = std::int64_t{blockIdx.y} * columns_of_block,
                       held = columns - first_column;
    const std::int64_t begin = blockIdx.x * rows_of_slice;
    const std::int64_t end = begin + rows_of_slice < rows ? begin + rows_of_slice : rows;
    dy += first_column;
    float sums[8] = {};
    for (std::int64_t row = begin + warp; row < end; row += bias_warps * bias_unrolled) {
        Eight<T> loaded[bias_unrolled] = {};
#pragma unroll
        for (int i = 0; i < bias_unrolled; ++i)
            if (row + i * bias_warps < end)
                load_columns<T, wide>(dy + (row + i * bias_warps) * stride, held, loaded[i]);
#pragma unroll
        for (int i = 0; i < bias_unrolled; ++i) {
            float values[8];
            to_floats(loaded[i], values);
#pragma unroll
            for (int e = 0; e < 8; ++e) sums[e] += values[e];
        }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) of_warp[warp][wide ? 8 * lane + e : lane + 32 * e] = sums[e];
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= held) return;
    float sum = 0;
    for (int i = 0; i < bias_warps; ++i) sum += of_warp[i][column];
    slices[blockIdx.x * columns + first_column + column] = sum;
}

}  // namespace

void bias_gradient(const Launch& launch, const BiasGradient& op) {
    constexpr std::int64_t most_slices = 512;
    const std::int64_t rows = op.dy.size(0), columns = op.dy.size(1);
    if (columns == 0) return;
    const std::int64_t rows_of_slice =
        std::max<std::int64_t>(bias_warps * bias_unrolled, ceil_div(rows, most_slices));
    const std::int64_t slices = ceil_div(rows, rows_of_slice);
    auto* sums = launch.scratch.take_array<float>(static_cast<std::size_t>(slices * columns));
    const bool wide = eights_fit(op.dy);
    if (slices > 0) {
        const std::int64_t tiles = ceil_div(columns, columns_of_block);
        require(tiles <= 65535, "bias_gradient: more columns than a grid holds");
        with_floating(op.dy.dtype(), [&]<class T>() {
            const auto kernel = wide ? sum_rows<T, true> : sum_rows<T, false>;
            kernel<<<dim3(slices, tiles), 32 * bias_warps, 0, launch.stream>>>(
                elements<T>(op.dy), rows, columns, op.dy.stride(0), rows_of_slice, sums);
        });
        check_launch("bias_gradient");
    }
    sum_slices_of_columns(launch, sums, slices, op.dbias, op.accumulate);
}

}  // namespace drover::cuda
