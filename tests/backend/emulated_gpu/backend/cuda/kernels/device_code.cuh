#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "backend/emulated_gpu/machine.h"
#include "core/tensor.h"

/// src/backend/cuda/kernels/device_code.cuh for the emulated GPU, as far as the kernels that are tested on it
/// need it.

#define threadIdx (::drover::test::emulated_gpu::thread_index())
#define blockIdx (::drover::test::emulated_gpu::block_index())
#define gridDim (::drover::test::emulated_gpu::grid_size())

namespace drover::cuda {

namespace emulated = test::emulated_gpu;
using std::max;
using std::min;

using half_t = __half;
using bfloat_t = __nv_bfloat16;

inline float to_float(float x) {
    return x;
}
inline float to_float(bfloat_t x) {
    return __bfloat162float(x);
}
inline float to_float(half_t x) {
    return __half2float(x);
}
template <class T>
T from_float(float x);
template <>
inline bfloat_t from_float<bfloat_t>(float x) {
    return __float2bfloat16_rn(x);
}
template <>
inline half_t from_float<half_t>(float x) {
    return __float2half_rn(x);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
    T all[32];
    emulated::exchange_in_warp(&value, all, sizeof value);
    return all[threadIdx.x % 32 ^ static_cast<unsigned>(distance)];
}
inline void __syncwarp() {
    __shfl_xor_sync(0xFFFFFFFFu, 0, 0);
}
inline void __syncthreads() {
    emulated::meet(0, emulated::block_threads());
}

inline int atomicAdd(int* to, int value) {
    return std::exchange(*to, *to + value);
}
inline float __int_as_float(int bits) {
    return std::bit_cast<float>(bits);
}
inline float __uint_as_float(unsigned bits) {
    return std::bit_cast<float>(bits);
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
void __stcs(T* to, T value) {
    *to = value;
}

}  // namespace drover::cuda
