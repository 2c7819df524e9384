#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels.h"

/// Building blocks of the kernels: element types, wide loads and stores, sums over a warp or a block,
/// launches.
namespace drover::cuda {

// --------------------------------------------------------------------------------------------- element types

/// The device's type for a host element type of core/dtype.h.
using half_t = __half;
using bfloat_t = __nv_bfloat16;

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(bfloat_t x) {
    return __bfloat162float(x);
}
__device__ inline float to_float(half_t x) {
    return __half2float(x);
}

/// Rounds to nearest even.
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
    return x;
}
template <>
__device__ inline bfloat_t from_float<bfloat_t>(float x) {
    return __float2bfloat16_rn(x);
}
template <>
__device__ inline half_t from_float<half_t>(float x) {
    return __float2half_rn(x);
}

/// x rounded to T and back.
template <class T>
__device__ inline float rounded(float x) {
    return to_float(from_float<T>(x));
}
/// One instruction at full rate: a pair of bf16 with x in the upper half and 0 in the lower is x as an fp32.
/// The single conversion shares a slow unit with exponentials.
template <>
__device__ inline float rounded<bfloat_t>(float x) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.f));
    return __uint_as_float(pair);
}

/// Calls body.template operator()<T>() with the device type of a floating dtype.
template <class Body>
void with_floating(DType dtype, const Body& body) {
    switch (dtype) {
        case DType::f32:
            return body.template operator()<float>();
        case DType::bf16:
            return body.template operator()<bfloat_t>();
        case DType::f16:
            return body.template operator()<half_t>();
        default:
            bug("kernel called with a dtype that it has no code for");
    }
}

/// The elements of a tensor as the device's type T; nullptr for an absent tensor.
template <class T>
T* elements(const Tensor& tensor) {
    return static_cast<T*>(tensor.raw());
}

// ---------------------------------------------------------------------------------------- 16 bytes at a time

/// Elements that one 16-byte access holds.
template <class T>
inline constexpr int pack_size = 16 / sizeof(T);

template <class T>
struct alignas(16) Pack {
    T element[pack_size<T>];
};

template <class T>
__device__ inline Pack<T> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
}

/// Whether packs of T can be used on rows of `columns` elements that are `stride` apart, from `data`.
template <class T>
bool packs_fit(const void* data, std::int64_t columns, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && columns % pack_size<T> == 0 &&
           stride % pack_size<T> == 0;
}

// ------------------------------------------------------------------------------------- sums in a fixed order

template <class T>
__device__ inline T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    return value;
}
/// The sum over this lane and those before it.
__device__ inline int warp_sum_up_to_here(int value) {
    for (int distance = 1; distance < 32; distance *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, value, distance);
        if (static_cast<int>(threadIdx.x % 32) >= distance) value += lower;
    }
    return value;
}
__device__ inline float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    return value;
}

/// The sum over all threads of the block, in every thread. All threads must call it; blockDim.x is a
/// multiple of 32, at most 1024.
template <class T>
__device__ inline T block_sum(T value) {
    __shared__ T of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = warp_sum(value);
    __syncthreads();  // of_warp may still be read from an earlier call
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    return warp_sum(lane < warps ? of_warp[lane] : T(0));
}

// -------------------------------------------------------------------------------------------------- launches

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

/// After `kernel<<<…>>>`: reports a launch that was refused.
inline void check_launch(const char* operation) {
    check(cudaGetLastError(), operation);
}

}  // namespace drover::cuda
