#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/exponentials.cuh"

namespace drover::cuda {
namespace {

constexpr int statistics_threads = 256;
/// Eights that a thread works on at once, while the same number is in flight.
template <class T>
inline constexpr int statistics_unrolled = sizeof(T) == 2 ? 4 : 2;
constexpr std::int32_t no_index = 0x7FFFFFFF;

__device__ inline float lowest() {
    return -__int_as_float(0x7F800000);
}

template <class T>
struct PairOf;
template <>
struct PairOf<bfloat_t> {
    using Type = __nv_bfloat162;
};
template <>
struct PairOf<half_t> {
    using Type = __half2;
};

/// The largest element that is not NaN.
template <class T, int count>
__device__ float largest_of(const Eight<T> (&eights)[count]) {
    if constexpr (sizeof(T) == 2) {
        using Pair = typename PairOf<T>::Type;
        const Pair* pairs = reinterpret_cast<const Pair*>(&eights);
        Pair largest = pairs[0];
#pragma unroll
        for (int i = 1; i < 4 * count; ++i) largest = __hmax2(largest, pairs[i]);
        return fmaxf(to_float(largest.x), to_float(largest.y));
    } else {
        const T* elements = reinterpret_cast<const T*>(&eights);
        float largest = elements[0];
#pragma unroll
        for (int i = 1; i < 8 * count; ++i) largest = fmaxf(largest, elements[i]);
        return largest;
    }
}

/// Online softmax: the largest logit so far, the group of a thread's logits that contains it (of equals, the
/// last one read), and the sum of the exponentials relative to it; with `weighs`, also that of exponential ·
/// logit. NaN never compares larger; it shows up in the sum.
template <class T, bool weighs>
struct Running {
    float max = lowest();
    float sum = 0;
    float weighted = 0;
    std::int32_t group = 0;

    /// If all logits of the row are −∞ (part of a larger vocabulary), all exponentials are zero.
    __device__ float reference() const { return max == lowest() ? 0.f : max; }
    __device__ ExponentialsFrom<T> exponentials() const { return ExponentialsFrom<T>(reference()); }

    __device__ void raise(float to) {
        const float before = max;
        const ExponentialsFrom<T> old = exponentials();
        max = fmaxf(max, to);
        const float factor = before == lowest() ? 0.f : old.factor_to(exponentials());
        sum *= factor;
        if constexpr (weighs) weighted *= factor;
    }

    __device__ void take(float largest, std::int32_t of_group) {
        if (!(largest >= max)) return;
        raise(largest);
        group = of_group;
    }

    __device__ void merge(Running other) {
        const float largest = fmaxf(max, other.max);
        raise(largest);
        other.raise(largest);
        sum += other.sum;
        if constexpr (weighs) weighted += other.weighted;
    }

    /// Merges all threads' values into every thread, except the group, which stays each thread's own.
    __device__ void merge_block() {
        __shared__ float maxima[statistics_threads / 32], sums[statistics_threads / 32],
            weighted_sums[weighs ? statistics_threads / 32 : 1];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        merge_lanes();
        if (lane == 0) {
            maxima[warp] = max;
            sums[warp] = sum;
            if constexpr (weighs) weighted_sums[warp] = weighted;
        }
        __syncthreads();
        max = lane < statistics_threads / 32 ? maxima[lane] : lowest();
        sum = lane < statistics_threads / 32 ? sums[lane] : 0.f;
        if constexpr (weighs) weighted = lane < statistics_threads / 32 ? weighted_sums[lane] : 0.f;
        merge_lanes();
    }

  private:
    __device__ void merge_lanes() {
        for (int offset = 16; offset > 0; offset /= 2) {
            Running other{__shfl_xor_sync(0xFFFFFFFFu, max, offset),
                          __shfl_xor_sync(0xFFFFFFFFu, sum, offset)};
            if constexpr (weighs) other.weighted = __shfl_xor_sync(0xFFFFFFFFu, weighted, offset);
            merge(other);
        }
    }
};

struct Results {
    float *max, *sum_exp, *target_logit, *logit_sum, *weighted_sum;
    std::int32_t* argmax;
};

/// A row, cut for the threads of a block: elements before the first 16-byte boundary, groups of
/// `statistics_unrolled` eights per thread, of which the last may be incomplete, and elements after the last
/// eight.
template <class T>
struct CutRow {
    const T* logits;
    std::int32_t width, before, eights, groups;

    __device__ CutRow(const T* row, std::int32_t columns) : logits(row), width(columns) {
        const auto misaligned =
            static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
        before = misaligned == 0 ? 0 : static_cast<std::int32_t>(16 / sizeof(T)) - misaligned;
        if (before > width) before = width;
        eights = (width - before) / 8;
        groups = (eights + statistics_threads * statistics_unrolled<T> - 1) /
                 (statistics_threads * statistics_unrolled<T>);
    }

    /// The single elements count as groups of their own.
    static constexpr std::int32_t group_before = -1;
    __device__ std::int32_t group_behind() const { return groups; }
    __device__ std::int32_t behind() const { return before + eights * 8; }

    __device__ std::int32_t eight(std::int32_t group, int i) const {
        return (group * statistics_unrolled<T> + i) * statistics_threads +
               static_cast<std::int32_t>(threadIdx.x);
    }
    __device__ void load(std::int32_t group, Eight<T> (&to)[statistics_unrolled<T>]) const {
#pragma unroll
        for (int i = 0; i < statistics_unrolled<T>; ++i)
            if (eight(group, i) < eights) to[i] = load_eight_streaming(logits + before + eight(group, i) * 8);
    }

    /// The first of this thread's elements in the group that equals `value`.
    __device__ std::int32_t find(float value, std::int32_t group) const {
        if (group == group_before) return threadIdx.x;
        if (group == group_behind()) return behind() + threadIdx.x;
        for (int i = 0; i < statistics_unrolled<T>; ++i)
            for (int e = 0; e < 8 && eight(group, i) < eights; ++e) {
                const std::int32_t at = before + eight(group, i) * 8 + e;
                if (to_float(logits[at]) == value) return at;
            }
        return no_index;
    }
};

/// A logit of −∞ adds nothing.
__device__ inline float weighted(float weight, float logit) {
    return weight == 0.f ? 0.f : weight * logit;
}

/// One block per row. Groups are taken from the last to the first, so that of equal logits the first is
/// found.
template <class T, bool sums_logits, bool weighs>
__global__ void __launch_bounds__(statistics_threads, 4)
    statistics_of_rows(const T* logits, std::int64_t stride, std::int32_t width, const std::int32_t* targets,
                       std::int64_t first_id, Results results) {
    const std::int64_t row = blockIdx.x;
    const CutRow<T> cut(logits + row * stride, width);
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
    __shared__ std::int32_t first_of_largest;
    if (thread == 0) first_of_largest = no_index;

    Running<T, weighs> running;
    float logit_sum = 0;
    const auto take_one = [&](std::int32_t at, std::int32_t group) {
        const float value = to_float(cut.logits[at]);
        running.take(value, group);
        const float weight = running.exponentials()(value);
        running.sum += weight;
        if constexpr (weighs) running.weighted += weighted(weight, value);
        if constexpr (sums_logits) logit_sum += value;
    };
    const auto take_eight = [&](const Eight<T>& eight) {
        float values[8];
        to_floats(eight, values);
        if constexpr (sums_logits)
#pragma unroll
            for (int e = 0; e < 8; ++e) logit_sum += values[e];
        const ExponentialsFrom<T> exponential = running.exponentials();
        float products = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const float weight = exponential(values[e]);
            if constexpr (weighs) products += weighted(weight, values[e]);
            values[e] = weight;
        }
        if constexpr (weighs) running.weighted += products;
        running.sum += ((values[0] + values[1]) + (values[2] + values[3])) +
                       ((values[4] + values[5]) + (values[6] + values[7]));
    };

    Eight<T> arriving[statistics_unrolled<T>];
    if (cut.groups > 0) cut.load(cut.groups - 1, arriving);
    if (cut.behind() + thread < width) take_one(cut.behind() + thread, cut.group_behind());
    for (std::int32_t group = cut.groups - 1; group >= 0; --group) {
        Eight<T> loaded[statistics_unrolled<T>];
#pragma unroll
        for (int i = 0; i < statistics_unrolled<T>; ++i) loaded[i] = arriving[i];
        if (group > 0) cut.load(group - 1, arriving);
        if (cut.eight(group, statistics_unrolled<T> - 1) < cut.eights) {
            running.take(largest_of(loaded), group);
#pragma unroll
            for (int i = 0; i < statistics_unrolled<T>; ++i) take_eight(loaded[i]);
        } else {
#pragma unroll
            for (int i = statistics_unrolled<T> - 1; i >= 0; --i) {
                if (cut.eight(group, i) >= cut.eights) continue;
                const Eight<T> single[1] = {loaded[i]};
                running.take(largest_of(single), group);
                take_eight(loaded[i]);
            }
        }
    }
    if (thread < cut.before) take_one(thread, cut.group_before);

    if constexpr (sums_logits) logit_sum = block_sum(logit_sum);
    const float own_max = running.max;
    running.merge_block();
    if (own_max == running.max && own_max != lowest())
        atomicMin(&first_of_largest, cut.find(own_max, running.group));
    __syncthreads();
    if (thread > 0) return;
    results.max[row] = running.max;
    const float correction = running.exponentials().correction(running.reference());
    results.sum_exp[row] = running.sum * correction;
    if constexpr (weighs) results.weighted_sum[row] = running.weighted * correction;
    results.argmax[row] =
        static_cast<std::int32_t>((first_of_largest == no_index ? 0 : first_of_largest) + first_id);
    const std::int64_t target = targets[row] - first_id;
    const bool held = targets[row] != ignored_target && target >= 0 && target < width;
    results.target_logit[row] = held ? to_float(cut.logits[target]) : 0.f;
    if constexpr (sums_logits) results.logit_sum[row] = logit_sum;
}

__global__ void rescale_rows(const float* local_max, const float* max, float* sum_exp, std::int32_t* argmax,
                             float* weighted_sum, std::int64_t rows) {
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float factor = expf(local_max[row] - max[row]);
    sum_exp[row] *= factor;
    if (weighted_sum != nullptr) weighted_sum[row] *= factor;
    if (local_max[row] < max[row]) argmax[row] = no_index;
}

}  // namespace

void cross_entropy_statistics(const Launch& launch, const CrossEntropyStatistics& op) {
    const std::int64_t rows = op.logits.size(0), width = op.logits.size(1);
    if (rows == 0) return;
    require(width < no_index - 8 * statistics_threads * statistics_unrolled<half_t>,
            "cross_entropy_statistics: a vocabulary beyond 31 bits");
    const Results results{.max = elements<float>(op.max),
                          .sum_exp = elements<float>(op.sum_exp),
                          .target_logit = elements<float>(op.target_logit),
                          .logit_sum = elements<float>(op.logit_sum),
                          .weighted_sum = elements<float>(op.weighted_sum),
                          .argmax = elements<std::int32_t>(op.argmax)};
    with_floating(op.logits.dtype(), [&]<class T>() {
        const auto kernel =
            op.weighted_sum
                ? (op.logit_sum ? statistics_of_rows<T, true, true> : statistics_of_rows<T, false, true>)
                : (op.logit_sum ? statistics_of_rows<T, true, false> : statistics_of_rows<T, false, false>);
        kernel<<<rows, statistics_threads, 0, launch.stream>>>(
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
        elements<std::int32_t>(op.argmax), elements<float>(op.weighted_sum), rows);
    check_launch("cross_entropy_rescale");
}

}  // namespace drover::cuda
