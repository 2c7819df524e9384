#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/exponentials.cuh"

namespace drover::cuda {
namespace {

constexpr int gradient_threads = 256;
/// Eights that a thread has in flight at once.
constexpr int gradients_unrolled = 4;
constexpr std::int32_t elements_per_block = gradient_threads * gradients_unrolled * 8;

struct Rows {
    const std::int32_t* targets;
    const float *max, *sum_exp, *target_logit;
    const float* logit_sum;  ///< only with smoothing
    float* loss;
    const float* scale;
    std::int64_t first_id, stride;
    std::int32_t width;
    float smoothing, vocabulary;
    const float* weighted_sum;  ///< null: entropy and correct are not wanted
    const std::int32_t* argmax;
    float *entropy, *correct;

    __device__ void write_results(std::int64_t row) const {
        const bool ignored = targets[row] == ignored_target;
        if (weighted_sum != nullptr) {
            const float found = (max[row] - weighted_sum[row] / sum_exp[row]) + logf(sum_exp[row]);
            entropy[row] = ignored ? 0.f : found;
            correct[row] = !ignored && argmax[row] == targets[row] ? 1.f : 0.f;
        }
        if (ignored) {
            loss[row] = 0;
            return;
        }
        float value = (max[row] - target_logit[row]) + logf(sum_exp[row]);
        if (smoothing > 0) value += smoothing * (target_logit[row] - logit_sum[row] / vocabulary);
        loss[row] = value;
    }
};

__global__ void losses_only(const Rows rows, std::int64_t count) {
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row < count) rows.write_results(row);
}

/// A block replaces a piece of a row of logits by its gradient, and the first of a row writes the results.
/// Elements before the row's first 16-byte boundary belong to the first piece, the last ones to the last;
/// they are taken one by one.
template <class T>
__global__ void __launch_bounds__(gradient_threads, sizeof(T) == 2 ? 5 : 4)
    gradient_of_pieces(T* logits, const Rows rows, std::uint32_t pieces) {
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

    Eight<T> loaded[gradients_unrolled];
#pragma unroll
    for (int i = 0; i < gradients_unrolled; ++i)
        if (first + i * gradient_threads * 8 < end)
            loaded[i] = load_eight_streaming(logits + first + i * gradient_threads * 8);

    const bool ignored = rows.targets[row] == ignored_target;
    const std::int64_t of_share = rows.targets[row] - rows.first_id;
    const std::int32_t target =
        ignored || of_share < 0 || of_share >= rows.width ? -1 : static_cast<std::int32_t>(of_share);
    const float scale = *rows.scale, max = rows.max[row];
    const ExponentialsFrom<T> exponential(max);
    const float factor = scale / rows.sum_exp[row] * exponential.correction(max);
    const float everywhere = rows.smoothing > 0 ? scale * rows.smoothing / rows.vocabulary : 0.f;
    const float at_target = scale * (1.f - rows.smoothing);
    const auto gradient = [&](float logit) { return fmaf(exponential(logit), factor, -everywhere); };
    const auto take_one = [&](std::int32_t at) {
        float value = ignored ? 0.f : gradient(to_float(logits[at]));
        if (at == target) value -= at_target;
        logits[at] = from_float<T>(value);
    };
    if (piece == 0 && thread < before) take_one(thread);
#pragma unroll
    for (int i = 0; i < gradients_unrolled; ++i) {
        const std::int32_t at = first + i * gradient_threads * 8;
        if (at >= end) break;
        float values[8] = {};
        if (!ignored) {
            to_floats(loaded[i], values);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = gradient(values[e]);
        }
        if (static_cast<std::uint32_t>(target - at) < 8)
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (at + e == target) values[e] -= at_target;
        store_eight(logits + at, to_eight<T>(values));
    }
    if (piece == pieces - 1 && end + thread < rows.width) take_one(end + thread);
    if (piece == 0 && thread == 0) rows.write_results(row);
}

}  // namespace

void cross_entropy_gradient(const Launch& launch, const CrossEntropyGradient& op) {
    const std::int64_t count = op.logits.size(0), width = op.logits.size(1);
    if (count == 0) return;
    const std::int64_t pieces = ceil_div(width, elements_per_block);
    require(width < INT32_MAX - elements_per_block && count * pieces <= INT32_MAX,
            "cross_entropy_gradient: more logits than a grid holds");
    const Rows rows{.targets = elements<const std::int32_t>(op.targets),
                    .max = elements<const float>(op.max),
                    .sum_exp = elements<const float>(op.sum_exp),
                    .target_logit = elements<const float>(op.target_logit),
                    .logit_sum = elements<const float>(op.logit_sum),
                    .loss = elements<float>(op.loss),
                    .scale = elements<const float>(op.scale),
                    .first_id = op.first_id,
                    .stride = op.logits.stride(0),
                    .width = static_cast<std::int32_t>(width),
                    .smoothing = op.smoothing,
                    .vocabulary = static_cast<float>(op.vocabulary),
                    .weighted_sum = elements<const float>(op.weighted_sum),
                    .argmax = elements<const std::int32_t>(op.argmax),
                    .entropy = elements<float>(op.entropy),
                    .correct = elements<float>(op.correct)};
    if (!op.scale || width == 0) {
        losses_only<<<ceil_div(count, gradient_threads), gradient_threads, 0, launch.stream>>>(rows, count);
    } else {
        with_floating(op.logits.dtype(), [&]<class T>() {
            gradient_of_pieces<<<count * pieces, gradient_threads, 0, launch.stream>>>(
                elements<T>(op.logits), rows, static_cast<std::uint32_t>(pieces));
        });
    }
    check_launch("cross_entropy_gradient");
}

}  // namespace drover::cuda
