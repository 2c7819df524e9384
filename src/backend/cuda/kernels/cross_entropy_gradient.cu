#include "backend/cuda/kernels/cross_entropy_rows.cuh"

namespace drover::cuda {
namespace {

constexpr int threads = 256;
/// Eights that a thread has under way at once.
constexpr int unrolled = 4;
constexpr std::int32_t elements_per_block = threads * unrolled * 8;

__global__ void losses_only(const LossRows rows, std::int64_t count) {
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row < count) rows.write_loss(row, rows.max[row], rows.sum_exp[row], rows.target_logit[row]);
}

/// A block replaces a piece of a row of logits by its gradient, and the first of a row writes the loss.
/// Elements before the row's first 16-byte boundary belong to the first piece, the last ones to the last;
/// they are taken one by one.
template <class T>
__global__ void __launch_bounds__(threads, sizeof(T) == 2 ? 5 : 4)
    gradient_of_pieces(T* logits, const LossRows rows, std::uint32_t pieces) {
    const std::uint32_t row = blockIdx.x / pieces, piece = blockIdx.x - row * pieces;
    logits += row * rows.stride;
    constexpr std::int32_t pack = 16 / sizeof(T);
    const auto misaligned =
        static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T));
    const std::int32_t wanted = misaligned == 0 ? 0 : pack - misaligned;
    const std::int32_t before = wanted < rows.width ? wanted : rows.width;
    const std::int32_t end = before + (rows.width - before) / 8 * 8;
    const std::int32_t thread = threadIdx.x;
    const std::int32_t first = before + static_cast<std::int32_t>(piece) * elements_per_block + thread * 8;

    Eight<T> loaded[unrolled];
#pragma unroll
    for (int i = 0; i < unrolled; ++i)
        if (first + i * threads * 8 < end) loaded[i] = load_eight_streaming(logits + first + i * threads * 8);

    const GradientOfRow<T> gradient(rows, row, rows.max[row], rows.sum_exp[row]);
    const auto take_one = [&](std::int32_t at) {
        logits[at] = from_float<T>(gradient.of(to_float(logits[at]), at));
    };
    if (piece == 0 && thread < before) take_one(thread);
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
        const std::int32_t at = first + i * threads * 8;
        if (at >= end) break;
        store_eight(logits + at, gradient.of(loaded[i], at));
    }
    if (piece == pieces - 1 && end + thread < rows.width) take_one(end + thread);
    if (piece == 0 && thread == 0)
        rows.write_loss(row, rows.max[row], rows.sum_exp[row], rows.target_logit[row]);
}

}  // namespace

void cross_entropy_gradient(const Launch& launch, const CrossEntropyGradient& op) {
    const std::int64_t count = op.logits.size(0), width = op.logits.size(1);
    if (count == 0) return;
    const std::int64_t pieces = ceil_div(width, elements_per_block);
    require(width < INT32_MAX - elements_per_block && count * pieces <= INT32_MAX,
            "cross_entropy_gradient: more logits than a grid holds");
    const LossRows rows = loss_rows_of(op);
    if (!op.scale || width == 0) {
        losses_only<<<ceil_div(count, threads), threads, 0, launch.stream>>>(rows, count);
    } else {
        with_floating(op.logits.dtype(), [&]<class T>() {
            gradient_of_pieces<<<count * pieces, threads, 0, launch.stream>>>(
                elements<T>(op.logits), rows, static_cast<std::uint32_t>(pieces));
        });
    }
    check_launch("cross_entropy_gradient");
}

}  // namespace drover::cuda
