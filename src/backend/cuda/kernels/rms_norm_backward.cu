#include <algorithm>

#include "backend/cuda/kernels/column_sums.cuh"
#include "backend/cuda/kernels/rms_norm_types.cuh"

namespace drover::cuda {
namespace {

/// Blocks of 256 threads that a multiprocessor has room for: a thread's registers are twice as many with an
/// fp32 residual.
template <class R>
inline constexpr int resident = sizeof(R) == 2 ? 4 : 2;

/// Blocks that share the rows: one or a few full waves of an H200. A number of its own, because the order in
/// which dweight is summed depends on it.
std::int64_t blocks_for(std::int64_t rows, const Tensor& residual) {
    const int blocks = 132 * (size_of(residual.dtype()) == 2 ? resident<half_t> : resident<float>);
    return std::min<std::int64_t>(rows, blocks);
}

template <class Y, class R, class W>
struct Operands {
    const Y* dy;
    const R* residual;
    const W* weight;
    const float* rstd;
    const R* dresidual_out;  ///< may be null, or dresidual
    R* dresidual;
    float* slices;  ///< [blocks][width]: each block's part of dweight
    std::int64_t rows, width, dy_stride, residual_stride, dresidual_out_stride, dresidual_stride;

    /// What the residual is multiplied by in its gradient, from Σ dy · weight · residual.
    __device__ float along_residual(float rstd_of_row, float dots) const {
        return rstd_of_row * rstd_of_row * (dots * rstd_of_row / static_cast<float>(width));
    }
};

template <class Y, class R, class W, int held>
__global__ void __launch_bounds__(most_threads<held>, held == 4 ? 1 : resident<R> * 256 / most_threads<held>)
    gradient_held(const Operands<Y, R, W> op) {
    const int eights = static_cast<int>(op.width / 8);
    float dweight[held][8] = {};
#pragma unroll 1
    for (std::int64_t row = blockIdx.x; row < op.rows; row += gridDim.x) {
        Eight<Y> dy[held];
        Eight<R> residual[held], arriving[held];
#pragma unroll
        for (int i = 0; i < held; ++i) {
            const int at = threadIdx.x + i * blockDim.x;
            if (at >= eights) break;
            dy[i] = load_eight_streaming(op.dy + row * op.dy_stride + at * 8);
            residual[i] = load_eight_streaming(op.residual + row * op.residual_stride + at * 8);
            if (op.dresidual_out)
                arriving[i] = load_eight_streaming(op.dresidual_out + row * op.dresidual_out_stride + at * 8);
        }
        const float rstd = op.rstd[row];
        float dots = 0;
#pragma unroll
        for (int i = 0; i < held; ++i) {
            const int at = threadIdx.x + i * blockDim.x;
            if (at >= eights) break;
            float d[8], r[8], w[8];
            to_floats(dy[i], d);
            to_floats(residual[i], r);
            to_floats(load_eight(op.weight + at * 8), w);
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                dots += d[e] * w[e] * r[e];
                dweight[i][e] += d[e] * (r[e] * rstd);
            }
        }
        const float along_residual = op.along_residual(rstd, block_sum(dots));
#pragma unroll
        for (int i = 0; i < held; ++i) {
            const int at = threadIdx.x + i * blockDim.x;
            if (at >= eights) break;
            float d[8], r[8], w[8], a[8] = {};
            to_floats(dy[i], d);
            to_floats(residual[i], r);
            to_floats(load_eight(op.weight + at * 8), w);
            if (op.dresidual_out) to_floats(arriving[i], a);
#pragma unroll
            for (int e = 0; e < 8; ++e) a[e] += d[e] * w[e] * rstd - r[e] * along_residual;
            store_eight(op.dresidual + row * op.dresidual_stride + at * 8, to_eight<R>(a));
        }
    }
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at < eights) store_eight(op.slices + blockIdx.x * op.width + at * 8, to_eight<float>(dweight[i]));
    }
}

/// The same for rows of any width and alignment, which are read again; dweight's sums are kept in memory.
template <class Y, class R, class W>
__global__ void __launch_bounds__(any_width_threads) gradient_any(const Operands<Y, R, W> op) {
    float* const dweight = op.slices + blockIdx.x * op.width;
    for (std::int64_t i = threadIdx.x; i < op.width; i += blockDim.x) dweight[i] = 0;
    for (std::int64_t row = blockIdx.x; row < op.rows; row += gridDim.x) {
        const Y* const dy = op.dy + row * op.dy_stride;
        const R* const residual = op.residual + row * op.residual_stride;
        const float rstd = op.rstd[row];
        float dots = 0;
        for (std::int64_t i = threadIdx.x; i < op.width; i += blockDim.x) {
            const float d = to_float(dy[i]), r = to_float(residual[i]);
            dots += d * to_float(op.weight[i]) * r;
            dweight[i] += d * (r * rstd);
        }
        const float along_residual = op.along_residual(rstd, block_sum(dots));
        for (std::int64_t i = threadIdx.x; i < op.width; i += blockDim.x) {
            float d =
                to_float(dy[i]) * to_float(op.weight[i]) * rstd - to_float(residual[i]) * along_residual;
            if (op.dresidual_out) d += to_float(op.dresidual_out[row * op.dresidual_out_stride + i]);
            op.dresidual[row * op.dresidual_stride + i] = from_float<R>(d);
        }
    }
}

}  // namespace

void rms_norm_backward(const Launch& launch, const RmsNormBackward& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1),
                       blocks = blocks_for(rows, op.residual_out);
    if (width == 0) return;
    auto* slices = launch.scratch.take_array<float>(static_cast<std::size_t>(blocks * width));
    const bool wide = eights_fit(op.dy) && eights_fit(op.residual_out) && eights_fit(op.dresidual_out) &&
                      eights_fit(op.dresidual) && eights_fit(op.weight, width, 0);
    if (rows > 0) {
        with_norm_types(op.dy, op.residual_out, op.weight, [&]<class Y, class R, class W>() {
            const Operands<Y, R, W> operands{
                .dy = elements<Y>(op.dy),
                .residual = elements<R>(op.residual_out),
                .weight = elements<W>(op.weight),
                .rstd = elements<float>(op.rstd),
                .dresidual_out = elements<R>(op.dresidual_out),
                .dresidual = elements<R>(op.dresidual),
                .slices = slices,
                .rows = rows,
                .width = width,
                .dy_stride = op.dy.stride(0),
                .residual_stride = op.residual_out.stride(0),
                .dresidual_out_stride = op.dresidual_out ? op.dresidual_out.stride(0) : 0,
                .dresidual_stride = op.dresidual.stride(0)};
            with_held(wide, width, [&]<int held>(int threads) {
                if constexpr (held == 0)
                    gradient_any<<<blocks, threads, 0, launch.stream>>>(operands);
                else
                    gradient_held<Y, R, W, held><<<blocks, threads, 0, launch.stream>>>(operands);
            });
        });
        check_launch("rms_norm_backward");
    }
    sum_slices_of_columns(launch, slices, blocks, op.dweight, op.accumulate);
}

}  // namespace drover::cuda
