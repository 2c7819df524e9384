#include "backend/cuda/kernels/block_order.cuh"
#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/fp8.cuh"
#include "backend/cuda/kernels/rms_norm_types.cuh"

namespace drover::cuda {
namespace {

template <class Y, class R, class W>
struct Operands {
    const Y* x;  ///< null when nothing is added
    const R* residual_in;
    R* residual_out;
    const W* weight;
    Y* y;
    float* rstd;
    float* maximum;  ///< may be null
    std::int64_t rows, width, x_stride, residual_in_stride, residual_out_stride, y_stride;
    float eps;

    __device__ float rstd_of(float squares) const {
        return 1.f / sqrtf(squares / static_cast<float>(width) + eps);
    }
};

/// Narrow rows take one warp each; a block has this many.
constexpr int warps_of_block = 4;

/// One block per row, or one warp. The row stays in registers: `held` eights per thread.
template <class Y, class R, class W, int held, bool row_per_warp>
__global__ void __launch_bounds__(row_per_warp ? 32 * warps_of_block : most_threads)
    normalise_held(const Operands<Y, R, W> op) {
    const std::int64_t block = block_from_the_end();
    const std::int64_t row = row_per_warp ? block * warps_of_block + threadIdx.x / 32 : block;
    wait_for_earlier_kernels();
    if (row >= op.rows) return;
    std::uint32_t most = 0;
    const int thread = row_per_warp ? threadIdx.x % 32 : threadIdx.x;
    const int threads = row_per_warp ? 32 : blockDim.x;
    const int eights = static_cast<int>(op.width / 8);
    Eight<Y> added[held];
    Eight<R> residual[held];
    Eight<W> weight[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = thread + i * threads;
        if (at >= eights) break;
        residual[i] = load_eight_streaming(op.residual_in + row * op.residual_in_stride + at * 8);
        if (op.x) added[i] = load_eight_streaming(op.x + row * op.x_stride + at * 8);
        weight[i] = load_eight(op.weight + at * 8);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = thread + i * threads;
        if (at >= eights) break;
        float sum[8];
        to_floats(residual[i], sum);
        if (op.x) {
            float x[8];
            to_floats(added[i], x);
#pragma unroll
            for (int e = 0; e < 8; ++e) sum[e] += x[e];
            residual[i] = to_eight<R>(sum);
            to_floats(residual[i], sum);
            store_eight(op.residual_out + row * op.residual_out_stride + at * 8, residual[i]);
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) squares += sum[e] * sum[e];
    }
    const float rstd = op.rstd_of(row_per_warp ? warp_sum(squares) : block_sum(squares));
    if (thread == 0) op.rstd[row] = rstd;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = thread + i * threads;
        if (at >= eights) break;
        float values[8], factors[8];
        to_floats(residual[i], values);
        to_floats(weight[i], factors);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            values[e] = rounded<R>(values[e] * rstd) * factors[e];
            most = max(most, magnitude_bits(values[e]));
        }
        store_eight(op.y + row * op.y_stride + at * 8, to_eight<Y>(values));
    }
    if (!op.maximum) return;
    if constexpr (row_per_warp)
        raise_maximum_by_warp(op.maximum, rounded_bits<Y>(most));
    else
        raise_maximum(op.maximum, rounded_bits<Y>(most));
}

/// The same for rows of any width and alignment, which are read again.
template <class Y, class R, class W>
__global__ void __launch_bounds__(most_threads) normalise_any(const Operands<Y, R, W> op) {
    const std::int64_t row = blockIdx.x;
    const R* residual = op.residual_in + row * op.residual_in_stride;
    R* const residual_out = op.residual_out + row * op.residual_out_stride;
    float squares = 0;
    for (std::int64_t i = threadIdx.x; i < op.width; i += blockDim.x) {
        float value = to_float(residual[i]);
        if (op.x) {
            value = rounded<R>(value + to_float(op.x[row * op.x_stride + i]));
            residual_out[i] = from_float<R>(value);
        }
        squares += value * value;
    }
    if (op.x) residual = residual_out;
    const float rstd = op.rstd_of(block_sum(squares));
    if (threadIdx.x == 0) op.rstd[row] = rstd;
    std::uint32_t most = 0;
    for (std::int64_t i = threadIdx.x; i < op.width; i += blockDim.x) {
        const float value = rounded<R>(to_float(residual[i]) * rstd) * to_float(op.weight[i]);
        most = max(most, magnitude_bits(value));
        op.y[row * op.y_stride + i] = from_float<Y>(value);
    }
    if (op.maximum) raise_maximum(op.maximum, rounded_bits<Y>(most));
}

}  // namespace

void rms_norm(const Launch& launch, const RmsNorm& op) {
    const std::int64_t rows = op.y.size(0), width = op.y.size(1);
    if (rows == 0) return;
    const bool wide = eights_fit(op.y) && eights_fit(op.x) && eights_fit(op.residual_in) &&
                      (!op.x || eights_fit(op.residual_out)) && eights_fit(op.weight, width, 0);
    with_norm_types(op.y, op.residual_in, op.weight, [&]<class Y, class R, class W>() {
        const Operands<Y, R, W> operands{.x = elements<Y>(op.x),
                                         .residual_in = elements<R>(op.residual_in),
                                         .residual_out = elements<R>(op.residual_out),
                                         .weight = elements<W>(op.weight),
                                         .y = elements<Y>(op.y),
                                         .rstd = elements<float>(op.rstd),
                                         .maximum = elements<float>(op.maximum),
                                         .rows = rows,
                                         .width = width,
                                         .x_stride = op.x ? op.x.stride(0) : 0,
                                         .residual_in_stride = op.residual_in.stride(0),
                                         .residual_out_stride = op.x ? op.residual_out.stride(0) : 0,
                                         .y_stride = op.y.stride(0),
                                         .eps = op.eps};
        with_team(wide, width, 3, [&]<int held>(int threads) {
            if constexpr (held == 0)
                normalise_any<<<rows, threads, 0, launch.stream>>>(operands);
            else if (threads == 32)
                launch_early("rms_norm", launch, normalise_held<Y, R, W, held, true>,
                             static_cast<unsigned>(ceil_div(rows, warps_of_block)), 32 * warps_of_block, 0,
                             operands);
            else
                launch_early("rms_norm", launch, normalise_held<Y, R, W, held, false>,
                             static_cast<unsigned>(rows), threads, 0, operands);
        });
    });
    check_launch("rms_norm");
}

}  // namespace drover::cuda
