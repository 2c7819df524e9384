#pragma once

/// Exponentials that are only as accurate as the type of the result requires, for speed.
namespace drover::cuda {

inline constexpr float log2_of_e = 1.4426950408889634f;

/// 2^x to a few units in the last place; results below 2^−126 are 0.
__device__ inline float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// exp(x) for results that are then rounded to T: a few units in the last place of fp32 for 16-bit types,
/// where results below 2^−126 are 0; exp itself for fp32.
template <class T>
__device__ inline float exponential_for(float x) {
    if constexpr (sizeof(T) == 4)
        return expf(x);
    else
        return power_of_two(x * log2_of_e);
}

/// a · b, rounded here: the compiler cannot fuse it into a sum, whose product would then differ from the one
/// used elsewhere.
__device__ inline float rounded_product(float a, float b) {
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

/// exp(x − from) of many x, as exact as exponential_for. For 16-bit types an x costs one multiply-add and one
/// power of two: from · log2(e) is rounded once, and its rounding error is a factor that all of them share.
template <class T>
class ExponentialsFrom {
  public:
    __device__ explicit ExponentialsFrom(float from)
        : shift_(sizeof(T) == 4 ? from : rounded_product(from, log2_of_e)) {}

    /// exp(x − from), up to the shared factor.
    __device__ float operator()(float x) const {
        if constexpr (sizeof(T) == 4)
            return expf(x - shift_);
        else
            return power_of_two(fmaf(x, log2_of_e, -shift_));
    }
    /// The factor that converts such values to those of `other`.
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
