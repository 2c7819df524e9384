#include "backend/cuda/kernels/column_sums.cuh"
#include "backend/cuda/kernels/rms_norm_ring.cuh"
#include "backend/cuda/kernels/rms_norm_types.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"

namespace drover::cuda {
namespace {

/// Blocks that share the rows: one per multiprocessor of an H200. A constant, because the order in which
/// dweight is summed depends on it.
constexpr std::int64_t most_blocks = 132;

template <class Y, class R, class W>
struct Operands {
    const Y* dy;
    const R* residual;
    const W* weight;
    const float* rstd;
    const R* dresidual_out;  ///< may be null, or dresidual
    R* dresidual;
    Y* y;           ///< may be null
    float* slices;  ///< [blocks][width]: each block's part of dweight
    std::int64_t rows, width, dy_stride, residual_stride, dresidual_out_stride, dresidual_stride, y_stride;

    /// The residual's factor in its gradient, from Σ dy · weight · residual.
    __device__ float along_residual(float rstd_of_row, float dots) const {
        return rstd_of_row * rstd_of_row * (dots * rstd_of_row / static_cast<float>(width));
    }
};

// -----------------------------------------------------------------------------------------------------------
// rows that are held in registers
//
// A block has several teams of threads, and each team processes one row after the other. Meanwhile the next
// rows are being copied to shared memory. A thread reads only what it fetched itself, so no thread waits for
// another. A thread keeps its columns' part of dweight, and at the end the teams' parts are added in shared
// memory.

/// Threads of a block: 16 warps, which leave 128 registers to a thread.
constexpr int threads = most_threads;

/// The sum over a team's threads, in each of them. `of_warp` is read until the team's next call but one.
__device__ inline float team_sum(float value, float* of_warp, int team, int team_threads) {
    value = warp_sum(value);
    if (team_threads == 32) return value;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(team_threads) : "memory");
    const int warps = team_threads / 32, lane = threadIdx.x % 32;
    return warp_sum(lane < warps ? of_warp[team * warps + lane] : 0.f);
}

/// Makes the compiler assume that the words have changed, so that it does not keep them in registers as fp32.
template <class T>
__device__ inline void keep_packed(Eight<T>& eight) {
    if constexpr (sizeof(T) == 2)
        asm volatile(""
                     : "+r"(eight.bits[0].x), "+r"(eight.bits[0].y), "+r"(eight.bits[0].z),
                       "+r"(eight.bits[0].w));
}

/// Where rows are `full`, each thread has `held` eights of them; elsewhere it may have fewer. The number of
/// stages makes no difference to the results.
template <class Y, class R, class W, int held, bool full, int stages>
__global__ void __launch_bounds__(threads, 1)
    gradient_held(const Operands<Y, R, W> op, const int team_threads) {
    using Places = Ring<Y, R, held, threads, stages>;
    constexpr int at_residual = Places::of_dy, at_arriving = Places::of_dy + Places::of_residual;
    extern __shared__ uint4 shared[];
    __shared__ float of_warp[2][threads / 32];  // static_bytes
    const Places ring(shared);
    const int eights = static_cast<int>(op.width / 8), teams = threads / team_threads;
    const int team = threadIdx.x / team_threads, thread = threadIdx.x % team_threads;
    const auto column = [&](int i) { return (thread + i * team_threads) * 8; };
    const auto has = [&](int i) { return full || thread + i * team_threads < eights; };
    const std::int64_t step = std::int64_t{gridDim.x} * teams;
    // Neighbouring rows are in flight at the same time.
    const std::int64_t first_row = std::int64_t{blockIdx.x} * teams + team;
    const bool arrives = op.dresidual_out != nullptr;

    const auto fetch_operands = [&](std::int64_t row, int stage) {
        if (row >= op.rows) return;
        const Y* const dy = op.dy + row * op.dy_stride;
        const R* const residual = op.residual + row * op.residual_stride;
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (has(i)) {
                ring.fetch(ring.place(stage, i, 0), dy + column(i));
                ring.fetch(ring.place(stage, i, at_residual), residual + column(i));
            }
    };
    const auto fetch_arriving = [&](std::int64_t row, int stage) {
        if (row < op.rows && arrives) {
            const R* const arriving = op.dresidual_out + row * op.dresidual_out_stride;
#pragma unroll
            for (int i = 0; i < held; ++i)
                if (has(i)) ring.fetch(ring.place(stage, i, at_arriving), arriving + column(i));
        }
        __pipeline_commit();
    };
    wait_for_earlier_kernels();
#pragma unroll
    for (int stage = 0; stage < Places::stages; ++stage) {
        fetch_operands(first_row + stage * step, stage);
        fetch_arriving(first_row + stage * step, stage);
    }
    const auto rstd_of = [&](std::int64_t row) { return row < op.rows ? op.rstd[row] : 0.f; };
    float next_rstd = rstd_of(first_row);

    Eight<W> weight[held];
#pragma unroll
    for (int i = 0; i < held; ++i)
        if (has(i)) weight[i] = load_eight(op.weight + column(i));
    allow_next_kernel();
    float dweight[held][8] = {};
    int stage = 0, parity = 0;
#pragma unroll 1
    for (std::int64_t row = first_row; row < op.rows; row += step) {
        const float rstd = next_rstd;
        next_rstd = rstd_of(row + step);
#pragma unroll
        for (int i = 0; i < held; ++i) keep_packed(weight[i]);
        __pipeline_wait_prior(Places::stages - 1);
        Eight<Y> dy[held];
        Eight<R> residual[held];
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (has(i)) {
                dy[i] = ring.template fetched<Y>(ring.place(stage, i, 0));
                residual[i] = ring.template fetched<R>(ring.place(stage, i, at_residual));
            }
        float dots = 0;
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (has(i)) {
                float d[8], r[8], w[8];
                to_floats(dy[i], d);
                to_floats(residual[i], r);
                to_floats(weight[i], w);
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    dots += d[e] * w[e] * r[e];
                    dweight[i][e] += d[e] * (r[e] * rstd);
                }
            }
        fetch_operands(row + Places::stages * step, stage);
        const float along_residual =
            op.along_residual(rstd, team_sum(dots, of_warp[parity], team, team_threads));
        parity ^= 1;
        Eight<R> arriving[held] = {};
        if (arrives)
#pragma unroll
            for (int i = 0; i < held; ++i)
                if (has(i)) arriving[i] = ring.template fetched<R>(ring.place(stage, i, at_arriving));
        R* const dresidual = op.dresidual + row * op.dresidual_stride;
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (has(i)) {
                float d[8], r[8], w[8], a[8];
                to_floats(dy[i], d);
                to_floats(residual[i], r);
                to_floats(weight[i], w);
                to_floats(arriving[i], a);
#pragma unroll
                for (int e = 0; e < 8; ++e) a[e] += d[e] * w[e] * rstd - r[e] * along_residual;
                store_eight(dresidual + column(i), to_eight<R>(a));
            }
        fetch_arriving(row + Places::stages * step, stage);
        stage = stage + 1 == Places::stages ? 0 : stage + 1;
        if (!op.y) continue;
        Y* const y = op.y + row * op.y_stride;
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (has(i)) {
                float r[8], w[8];
                to_floats(residual[i], r);
                to_floats(weight[i], w);
#pragma unroll
                for (int e = 0; e < 8; ++e) r[e] = rounded<R>(r[e] * rstd) * w[e];
                store_eight(y + column(i), to_eight<Y>(r));
            }
    }

    __syncthreads();  // no thread needs its buffers any more
    float* const of_team = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int i = 0; i < held; ++i)
        if (has(i)) store_eight(of_team + team * op.width + column(i), to_eight<float>(dweight[i]));
    __syncthreads();
    for (int at = threadIdx.x; at < op.width; at += threads) {
        float sum = 0;
        for (int i = 0; i < teams; ++i) sum += of_team[i * op.width + at];
        op.slices[blockIdx.x * op.width + at] = sum;
    }
}

// -----------------------------------------------------------------------------------------------------------

/// The same for rows of any width and alignment, which are read again; dweight's sums are kept in memory.
template <class Y, class R, class W>
__global__ void __launch_bounds__(most_threads) gradient_any(const Operands<Y, R, W> op) {
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
            const float r = to_float(residual[i]), w = to_float(op.weight[i]);
            float d = to_float(dy[i]) * w * rstd - r * along_residual;
            if (op.dresidual_out) d += to_float(op.dresidual_out[row * op.dresidual_out_stride + i]);
            op.dresidual[row * op.dresidual_stride + i] = from_float<R>(d);
            if (op.y) op.y[row * op.y_stride + i] = from_float<Y>(rounded<R>(r * rstd) * w);
        }
    }
}

/// Static shared memory of gradient_held.
constexpr int static_bytes = 2 * (threads / 32) * static_cast<int>(sizeof(float));

/// Launches gradient_held with this many stages, if these fit.
template <int held, int stages, class Y, class R, class W>
bool launch_held(const Launch& launch, const Operands<Y, R, W>& operands, std::int64_t blocks,
                 int team_threads) {
    constexpr int bytes = Ring<Y, R, held, threads, stages>::bytes;
    if (!shared_memory_fits(launch, bytes + static_bytes)) return false;
    auto* kernel = gradient_held<Y, R, W, held, false, stages>;
    // The usual widths. With more in fp32 there would not be enough registers.
    if constexpr (held == 2 || (held == 3 && sizeof(R) == 2 && sizeof(W) == 2))
        if (operands.width == held * team_threads * 8) kernel = gradient_held<Y, R, W, held, true, stages>;
    reserve_shared_memory(kernel, bytes, "rms_norm_backward");
    launch_early("rms_norm_backward", launch, kernel, static_cast<unsigned>(blocks), threads, bytes, operands,
                 team_threads);
    return true;
}

}  // namespace

void rms_norm_backward(const Launch& launch, const RmsNormBackward& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1);
    if (width == 0) return;
    const bool wide = eights_fit(op.dy) && eights_fit(op.residual_out) && eights_fit(op.dresidual_out) &&
                      eights_fit(op.dresidual) && eights_fit(op.y) && eights_fit(op.weight, width, 0);
    auto* slices = launch.scratch.take_array<float>(static_cast<std::size_t>(most_blocks * width));
    std::int64_t blocks = 0;
    if (rows > 0) {
        with_norm_types(op.dy, op.residual_out, op.weight, [&]<class Y, class R, class W>() {
            const Operands<Y, R, W> operands{
                .dy = elements<Y>(op.dy),
                .residual = elements<R>(op.residual_out),
                .weight = elements<W>(op.weight),
                .rstd = elements<float>(op.rstd),
                .dresidual_out = elements<R>(op.dresidual_out),
                .dresidual = elements<R>(op.dresidual),
                .y = elements<Y>(op.y),
                .slices = slices,
                .rows = rows,
                .width = width,
                .dy_stride = op.dy.stride(0),
                .residual_stride = op.residual_out.stride(0),
                .dresidual_out_stride = op.dresidual_out ? op.dresidual_out.stride(0) : 0,
                .dresidual_stride = op.dresidual.stride(0),
                .y_stride = op.y ? op.y.stride(0) : 0};
            // A thread has 128 registers; with an fp32 residual three eights take more.
            with_team(wide, width, sizeof(R) == 2 ? 3 : 2, [&]<int held>(int team_threads) {
                if constexpr (held > 0) {
                    blocks = std::min(most_blocks, ceil_div(rows, threads / team_threads));
                    constexpr auto stages_in = stages_within<Y, R, held, threads>;
                    constexpr int most = stages_in(160 * 1024), fewest = stages_in(98 * 1024);
                    if (launch_held<held, most>(launch, operands, blocks, team_threads)) return;
                    if constexpr (fewest < most)
                        if (launch_held<held, fewest>(launch, operands, blocks, team_threads)) return;
                }
                blocks = std::min(most_blocks, rows);
                gradient_any<<<blocks, threads, 0, launch.stream>>>(operands);
            });
        });
        check_launch("rms_norm_backward");
    }
    if (op.dweight) sum_slices_of_columns(launch, slices, blocks, op.dweight, op.accumulate);
}

}  // namespace drover::cuda
