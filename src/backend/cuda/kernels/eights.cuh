#pragma once

#include <type_traits>

#include "backend/cuda/kernels/device_code.cuh"

/// Eight elements at a time, worked on in fp32 whatever their type: one 16-byte access for 16-bit types, two
/// for fp32. What is loaded stays as it came until it is used, so that several loads can be under way in few
/// registers.
namespace drover::cuda {

template <class T>
struct Eight {
    uint4 bits[sizeof(T) / 2];
};

template <class T>
__device__ inline Eight<T> load_eight(const T* from) {
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) eight.bits[i] = reinterpret_cast<const uint4*>(from)[i];
    return eight;
}
/// Read once: does not stay in the caches.
template <class T>
__device__ inline Eight<T> load_eight_streaming(const T* from) {
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i)
        eight.bits[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);
    return eight;
}
template <class T>
__device__ inline void store_eight(T* to, const Eight<T>& eight) {
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) reinterpret_cast<uint4*>(to)[i] = eight.bits[i];
}
/// Not read again soon.
template <class T>
__device__ inline void store_eight_streaming(T* to, const Eight<T>& eight) {
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) __stcs(reinterpret_cast<uint4*>(to) + i, eight.bits[i]);
}

/// As to_floats(), for kernels that hold many eights at once: the update of AdamW spills registers with that
/// one, and this way it does not where it matters.
template <class T>
__device__ inline void to_floats_by_element(const Eight<T>& eight, float (&values)[8]) {
    const T* elements = reinterpret_cast<const T*>(&eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = to_float(elements[i]);
}

template <class T>
__device__ inline void to_floats(const Eight<T>& eight, float (&values)[8]) {
    if constexpr (std::is_same_v<T, bfloat_t>) {
        // A bf16 is the upper half of its fp32. Taken from the word, it needs one instruction and no register
        // before its turn; taken as an element, the compiler splits the words as soon as they arrive.
        const std::uint32_t words[4] = {eight.bits[0].x, eight.bits[0].y, eight.bits[0].z, eight.bits[0].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            values[2 * i] = __uint_as_float(words[i] << 16);
            values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
        }
    } else {
        to_floats_by_element(eight, values);
    }
}
/// Rounds to nearest even.
template <class T>
__device__ inline Eight<T> to_eight(const float (&values)[8]) {
    Eight<T> eight;
    T* elements = reinterpret_cast<T*>(&eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) elements[i] = from_float<T>(values[i]);
    return eight;
}

/// Whether eights of `tensor`'s elements are aligned: in rows of `columns` that are `stride` apart.
inline bool eights_fit(const Tensor& tensor, std::int64_t columns, std::int64_t stride) {
    const auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype()));
    return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0 && columns % 8 == 0 &&
           stride * bytes % 16 == 0;
}
/// The same for a matrix; an absent one fits.
inline bool eights_fit(const Tensor& matrix) {
    return !matrix || eights_fit(matrix, matrix.size(1), matrix.stride(0));
}

inline constexpr float log2_of_e = 1.4426950408889634f;

/// 2^x to a few units in the last place; results below 2^−126 are 0.
__device__ inline float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// exp(x) for results that are rounded to T afterwards: a few units in the last place of fp32 for 16-bit
/// types, where results below 2^−126 are 0; exp itself for fp32.
template <class T>
__device__ inline float exponential_for(float x) {
    if constexpr (sizeof(T) == 4)
        return expf(x);
    else
        return power_of_two(x * log2_of_e);
}

/// a · b, rounded here: the compiler cannot make it part of a sum, which would then be of another product than
/// what uses it elsewhere.
__device__ inline float rounded_product(float a, float b) {
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

/// exp(x − from) of many x, as exact as exponential_for. For 16-bit types an x costs one multiply-add and one
/// power of two: from · log2(e) is rounded once, and what that changes is a factor that all of them share.
template <class T>
class ExponentialsFrom {
  public:
    __device__ explicit ExponentialsFrom(float from)
        : shift_(sizeof(T) == 4 ? from : rounded_product(from, log2_of_e)) {}

    /// exp(x − from), but for the shared factor.
    __device__ float operator()(float x) const {
        if constexpr (sizeof(T) == 4)
            return expf(x - shift_);
        else
            return power_of_two(fmaf(x, log2_of_e, -shift_));
    }
    /// What such values are to be multiplied by to be such values of `other`.
    __device__ float factor_to(const ExponentialsFrom& other) const {
        if constexpr (sizeof(T) == 4)
            return expf(shift_ - other.shift_);
        else
            return power_of_two(shift_ - other.shift_);
    }
    /// The shared factor's inverse.
    __device__ float correction(float from) const {
        return sizeof(T) == 4 ? 1.f : power_of_two(-fmaf(from, log2_of_e, -shift_));
    }

  private:
    float shift_;
};

/// 1 / (1 + exp(−x)), as exact as exponential_for.
template <class T>
__device__ inline float sigmoid_for(float x) {
    const float below = 1.f + exponential_for<T>(-x);
    if constexpr (sizeof(T) == 4)
        return 1.f / below;
    else
        return __fdividef(1.f, below);
}

}  // namespace drover::cuda
