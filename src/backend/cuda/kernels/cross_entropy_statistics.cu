#include "backend/cuda/kernels/eights.cuh"

namespace drover::cuda {
namespace {

constexpr int threads = 512;
/// Eights that a thread has under way at once.
constexpr int unrolled = 4;
constexpr std::int32_t no_index = 0x7FFFFFFF;

__device__ inline float lowest() {
    return -__int_as_float(0x7F800000);
}

/// Online softmax: the largest logit so far, where it first stands, and the sum of exp(logit − max). NaN is
/// never larger; it shows in the sum.
template <class T>
struct Running {
    float max = lowest();
    float sum = 0;
    std::int32_t index = no_index;

    /// A row of −∞ only has exponentials of zero: its share in a larger vocabulary.
    __device__ float reference() const { return max == lowest() ? 0.f : max; }

    template <int count>
    __device__ void take(const float (&values)[count], std::int32_t begin) {
        float largest = values[0];
#pragma unroll
        for (int i = 1; i < count; ++i) largest = fmaxf(largest, values[i]);
        if (largest > max) {
            sum *= exponential_for<T>(max - largest);
            max = largest;
#pragma unroll
            for (int i = count - 1; i >= 0; --i)
                if (values[i] == largest) index = begin + i;
        }
        const float from = reference();
#pragma unroll
        for (int i = 0; i < count; ++i) sum += exponential_for<T>(values[i] - from);
    }

    __device__ void merge(float other_max, float other_sum, std::int32_t other_index) {
        if (other_max > max || (other_max == max && other_index < index)) index = other_index;
        const float both = fmaxf(max, other_max), from = both == lowest() ? 0.f : both;
        sum = sum * exponential_for<T>(max - from) + other_sum * exponential_for<T>(other_max - from);
        max = both;
    }

    __device__ void merge_lanes() {
        for (int offset = 16; offset > 0; offset /= 2)
            merge(__shfl_xor_sync(0xFFFFFFFFu, max, offset), __shfl_xor_sync(0xFFFFFFFFu, sum, offset),
                  __shfl_xor_sync(0xFFFFFFFFu, index, offset));
    }

    /// All threads' together, in the first warp's threads.
    __device__ void merge_block() {
        __shared__ float maxima[32], sums[32];
        __shared__ std::int32_t indices[32];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        merge_lanes();
        if (lane == 0) {
            maxima[warp] = max;
            sums[warp] = sum;
            indices[warp] = index;
        }
        __syncthreads();
        if (warp > 0) return;
        const bool held = lane < int(blockDim.x / 32);
        max = held ? maxima[lane] : lowest();
        sum = held ? sums[lane] : 0.f;
        index = held ? indices[lane] : no_index;
        merge_lanes();
    }
};

struct Results {
    float *max, *sum_exp, *target_logit, *logit_sum;
    std::int32_t* argmax;
};

/// One block per row. Elements before the first 16-byte boundary, and the last ones, are taken one by one.
template <class T, bool sums_logits>
__global__ void __launch_bounds__(threads)
    statistics_of_rows(const T* logits, std::int64_t stride, std::int32_t width, const std::int32_t* targets,
                       std::int64_t first_id, Results results) {
    const std::int64_t row = blockIdx.x;
    logits += row * stride;
    const auto misaligned =
        static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T));
    std::int32_t before = misaligned == 0 ? 0 : static_cast<std::int32_t>(16 / sizeof(T)) - misaligned;
    if (before > width) before = width;
    const std::int32_t eights = (width - before) / 8, after = before + eights * 8;

    Running<T> running;
    float logit_sum = 0;
    const auto take_one = [&](std::int32_t at) {
        const float value[1] = {to_float(logits[at])};
        running.take(value, at);
        if constexpr (sums_logits) logit_sum += value[0];
    };
    if (static_cast<std::int32_t>(threadIdx.x) < before) take_one(threadIdx.x);
    for (std::int32_t first = threadIdx.x; first < eights; first += threads * unrolled) {
        Eight<T> loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i)
            if (first + i * threads < eights)
                loaded[i] = load_eight(logits + before + (first + i * threads) * 8);
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            if (first + i * threads >= eights) break;
            float values[8];
            to_floats(loaded[i], values);
            running.take(values, before + (first + i * threads) * 8);
            if constexpr (sums_logits)
#pragma unroll
                for (int e = 0; e < 8; ++e) logit_sum += values[e];
        }
    }
    if (after + static_cast<std::int32_t>(threadIdx.x) < width) take_one(after + threadIdx.x);

    if constexpr (sums_logits) logit_sum = block_sum(logit_sum);
    running.merge_block();
    if (threadIdx.x > 0) return;
    results.max[row] = running.max;
    results.sum_exp[row] = running.sum;
    results.argmax[row] =
        static_cast<std::int32_t>((running.index == no_index ? 0 : running.index) + first_id);
    const std::int64_t target = targets[row] - first_id;
    const bool held = targets[row] != ignored_target && target >= 0 && target < width;
    results.target_logit[row] = held ? to_float(logits[target]) : 0.f;
    if constexpr (sums_logits) results.logit_sum[row] = logit_sum;
}

__global__ void rescale_rows(const float* local_max, const float* max, float* sum_exp, std::int32_t* argmax,
                             std::int64_t rows) {
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    sum_exp[row] *= expf(local_max[row] - max[row]);
    if (local_max[row] < max[row]) argmax[row] = no_index;
}

}  // namespace

void cross_entropy_statistics(const Launch& launch, const CrossEntropyStatistics& op) {
    const std::int64_t rows = op.logits.size(0), width = op.logits.size(1);
    if (rows == 0) return;
    require(width < no_index - 8 * threads * unrolled,
            "cross_entropy_statistics: a vocabulary beyond 31 bits");
    const Results results{.max = elements<float>(op.max),
                          .sum_exp = elements<float>(op.sum_exp),
                          .target_logit = elements<float>(op.target_logit),
                          .logit_sum = elements<float>(op.logit_sum),
                          .argmax = elements<std::int32_t>(op.argmax)};
    with_floating(op.logits.dtype(), [&]<class T>() {
        const auto kernel = op.logit_sum ? statistics_of_rows<T, true> : statistics_of_rows<T, false>;
        kernel<<<rows, threads, 0, launch.stream>>>(
            elements<T>(op.logits), op.logits.stride(0), static_cast<std::int32_t>(width),
            elements<const std::int32_t>(op.targets), op.first_id, results);
    });
    check_launch("cross_entropy_statistics");
}

void cross_entropy_rescale(const Launch& launch, const CrossEntropyRescale& op) {
    const std::int64_t rows = op.max.size(0);
    if (rows == 0) return;
    rescale_rows<<<ceil_div(rows, 256), 256, 0, launch.stream>>>(
        elements<const float>(op.local_max), elements<const float>(op.max), elements<float>(op.sum_exp),
        elements<std::int32_t>(op.argmax), rows);
    check_launch("cross_entropy_rescale");
}

}  // namespace drover::cuda
