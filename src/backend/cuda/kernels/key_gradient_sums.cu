#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/key_gradient_sums.h"

namespace drover::cuda {
namespace {

constexpr int key_sum_threads = 256;

/// The key of a warp.
__device__ std::int64_t own_key() {
    return (static_cast<std::int64_t>(blockIdx.x) * key_sum_threads + threadIdx.x) / 32;
}

/// Calls body(d) for a lane's eights of a head.
template <class Body>
__device__ void for_each_eight(std::int64_t head_size, const Body& body) {
    for (std::int64_t d = threadIdx.x % 32 * 8; d < head_size; d += 32 * 8) body(d);
}

template <class T>
__device__ void add_eight(float* sum, const T* added) {
    const Eight<float> old = load_eight(sum);
    const Eight<T> more = load_eight_streaming(added);
    float x[8], y[8];
    to_floats(old, x);
    to_floats(more, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] += y[i];
    store_eight(sum, to_eight<float>(x));
}

template <class T>
__device__ void round_eight(T* to, const float* sum) {
    float x[8];
    to_floats(load_eight(sum), x);
    store_eight(to, to_eight<T>(x));
}

/// One warp per key.
template <class T>
__global__ void add_rows(KeyGradientSums sums, KeyGradientPiece piece) {
    const std::int64_t key = own_key();
    if (key >= piece.keys) return;
    const std::int64_t to = (piece.first_key + key) * sums.head_size, from = key * sums.head_size;
    for_each_eight(sums.head_size, [&](std::int64_t d) {
        add_eight(sums.dk + to + d, static_cast<const T*>(piece.dk) + from + d);
        add_eight(sums.dv + to + d, static_cast<const T*>(piece.dv) + from + d);
    });
}

template <class T>
__global__ void store_rows(KeyGradientSums sums, T* dk, std::int64_t dk_stride, T* dv,
                           std::int64_t dv_stride) {
    const std::int64_t key = own_key();
    if (key >= sums.length) return;
    const std::int64_t from = key * sums.head_size;
    for_each_eight(sums.head_size, [&](std::int64_t d) {
        round_eight(dk + key * dk_stride + d, sums.dk + from + d);
        round_eight(dv + key * dv_stride + d, sums.dv + from + d);
    });
}

unsigned key_sum_blocks(std::int64_t keys) {
    return static_cast<unsigned>(ceil_div(keys, key_sum_threads / 32));
}

}  // namespace

void add_piece(const Launch& launch, const KeyGradientSums& sums, const KeyGradientPiece& piece) {
    if (piece.keys == 0) return;
    with_floating(piece.dtype, [&]<class T>() {
        add_rows<T><<<key_sum_blocks(piece.keys), key_sum_threads, 0, launch.stream>>>(sums, piece);
    });
    check_launch("attention's gradient of keys");
}

void store_sums(const Launch& launch, const KeyGradientSums& sums, const Tensor& dk, const Tensor& dv,
                std::int64_t first_token, std::int64_t head) {
    if (sums.length == 0) return;
    with_floating(dk.dtype(), [&]<class T>() {
        store_rows<T><<<key_sum_blocks(sums.length), key_sum_threads, 0, launch.stream>>>(
            sums, elements<T>(dk) + first_token * dk.stride(0) + head * dk.stride(1), dk.stride(0),
            elements<T>(dv) + first_token * dv.stride(0) + head * dv.stride(1), dv.stride(0));
    });
    check_launch("attention's gradient of keys");
}

}  // namespace drover::cuda
