#pragma once

#include "backend/cuda/kernels/eights.cuh"

/// Largest element and sum of exponentials of a row in one pass over it.
namespace drover::cuda {

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

/// The largest element that is no NaN.
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

/// Online softmax: the largest logit so far, the group of a thread's logits in which it stands (the last one
/// that was taken, of equals), and the sum of the exponentials from there. NaN is never larger; it shows in
/// the sum.
template <class T>
struct Running {
    float max = lowest();
    float sum = 0;
    std::int32_t group = 0;

    /// A row of −∞ only has exponentials of zero: its share in a larger vocabulary.
    __device__ float reference() const { return max == lowest() ? 0.f : max; }
    __device__ ExponentialsFrom<T> exponentials() const { return ExponentialsFrom<T>(reference()); }

    __device__ void raise(float to) {
        const float before = max;
        const ExponentialsFrom<T> old = exponentials();
        max = fmaxf(max, to);
        sum *= before == lowest() ? 0.f : old.factor_to(exponentials());
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
    }

    /// All threads' together, in every thread; the group stays each thread's own. Between two calls the block
    /// must come together.
    template <int threads>
    __device__ void merge_block() {
        __shared__ float maxima[threads / 32], sums[threads / 32];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        merge_lanes();
        if (lane == 0) {
            maxima[warp] = max;
            sums[warp] = sum;
        }
        __syncthreads();
        max = lane < threads / 32 ? maxima[lane] : lowest();
        sum = lane < threads / 32 ? sums[lane] : 0.f;
        merge_lanes();
    }

  private:
    __device__ void merge_lanes() {
        for (int offset = 16; offset > 0; offset /= 2)
            merge({__shfl_xor_sync(0xFFFFFFFFu, max, offset), __shfl_xor_sync(0xFFFFFFFFu, sum, offset)});
    }
};

}  // namespace drover::cuda
