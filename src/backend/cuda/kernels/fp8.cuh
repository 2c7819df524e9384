#pragma once

#include <cuda_fp8.h>

#include "backend/cuda/kernels/eight_elements.cuh"

/// FP8 numbers and the largest magnitudes that their scales are made of (ops/fp8.h).
namespace drover::cuda {

/// What elements are multiplied by to become FP8 numbers, and the scale that undoes it.
struct Fp8Factor {
    float factor, scale;

    __device__ explicit Fp8Factor(const float* maximum) {
        const float given = *maximum;
        const float most = given < smallest_maximum ? smallest_maximum : given;  // NaN stays
        factor = f8::largest / most;
        scale = most / f8::largest;
    }
};

/// The same of a block whose largest magnitude has these bits: powers of two, so that nothing becomes larger
/// than FP8's largest number. Where a number is not finite, all become NaN.
struct BlockFactor {
    float factor, scale;

    __device__ explicit BlockFactor(std::uint32_t most) {
        most = max(most, __float_as_uint(smallest_maximum));
        // 448 is 1.75 · 2⁸, so m / 448 has the exponent of m less 8, and rounds up to the next power of two
        // where m's mantissa is beyond 1.75.
        const std::uint32_t exponent = (most + 0x1FFFFFu) >> 23;
        scale = __uint_as_float((exponent - 8) << 23);
        factor = most < 0x7F800000u ? __uint_as_float((262 - exponent) << 23) : __uint_as_float(0x7FC00000u);
    }
};

/// Eight elements as FP8 numbers, the first in the lowest byte.
__device__ inline uint2 to_fp8(const float (&values)[8], float factor) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(values[2 * i] * factor, values[2 * i + 1] * factor),
                                            __NV_SATFINITE, __NV_E4M3);
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/// The bits of |x|. Their order is that of integers, with NaN above all numbers.
__device__ inline std::uint32_t magnitude_bits(float x) {
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

/// The same of a number that will be stored as T.
template <class T>
__device__ inline std::uint32_t rounded_bits(std::uint32_t bits) {
    return __float_as_uint(rounded<T>(__uint_as_float(bits)));
}

/// Raises *maximum to the largest of a warp's bits.
__device__ inline void raise_maximum_by_warp(float* maximum, std::uint32_t bits) {
    bits = __reduce_max_sync(0xFFFFFFFFu, bits);
    auto* const to = reinterpret_cast<std::uint32_t*>(maximum);
    // Most warps have nothing larger than what is there, and reading is cheaper.
    if (threadIdx.x % 32 == 0 && bits > *reinterpret_cast<volatile std::uint32_t*>(to)) atomicMax(to, bits);
}

/// The same for all threads of a block, which must all call it.
__device__ inline void raise_maximum(float* maximum, std::uint32_t bits) {
    bits = __reduce_max_sync(0xFFFFFFFFu, bits);
    __shared__ std::uint32_t of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    if (lane == 0) of_warp[warp] = bits;
    __syncthreads();
    if (warp == 0) raise_maximum_by_warp(maximum, lane < warps ? of_warp[lane] : 0u);
}

}  // namespace drover::cuda
