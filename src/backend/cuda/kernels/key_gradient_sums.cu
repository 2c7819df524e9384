#include "backend/cuda/kernels/eights.cuh"
#include "backend/cuda/kernels/key_gradient_sums.h"

namespace drover::cuda {
namespace {

constexpr int threads = 256;

/// The token of a warp.
__device__ std::int64_t own_token() {
    return (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;
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

/// One warp per token.
template <class T>
__global__ void add_rows(KeyGradientSums sums, KeyGradientPiece piece, const SequenceOfToken* map,
                         std::int64_t tokens) {
    const std::int64_t token = own_token();
    if (token >= tokens) return;
    const SequenceOfToken sequence = map[token];
    if (sequence.index != sums.sequence) return;
    const std::int64_t length = sequence.end - sequence.begin, position = token - sequence.begin;
    if (length <= piece.first_query || position < piece.first_key || position >= piece.end_query) return;
    const std::int64_t to = position * sums.head_size, from = (position - piece.first_key) * sums.head_size;
    for_each_eight(sums.head_size, [&](std::int64_t d) {
        add_eight(sums.dk + to + d, static_cast<const T*>(piece.dk) + from + d);
        add_eight(sums.dv + to + d, static_cast<const T*>(piece.dv) + from + d);
    });
}

template <class T>
__global__ void store_rows(KeyGradientSums sums, const SequenceOfToken* map, std::int64_t tokens, T* dk,
                           std::int64_t dk_stride, T* dv, std::int64_t dv_stride) {
    const std::int64_t token = own_token();
    if (token >= tokens) return;
    const SequenceOfToken sequence = map[token];
    if (sequence.index != sums.sequence) return;
    const std::int64_t from = (token - sequence.begin) * sums.head_size;
    for_each_eight(sums.head_size, [&](std::int64_t d) {
        round_eight(dk + token * dk_stride + d, sums.dk + from + d);
        round_eight(dv + token * dv_stride + d, sums.dv + from + d);
    });
}

unsigned blocks_for(std::int64_t tokens) {
    return static_cast<unsigned>(ceil_div(tokens, threads / 32));
}

}  // namespace

void add_piece(const Launch& launch, const KeyGradientSums& sums, const KeyGradientPiece& piece,
               const SequenceOfToken* map, std::int64_t tokens) {
    if (tokens == 0) return;
    with_floating(piece.dtype, [&]<class T>() {
        add_rows<T><<<blocks_for(tokens), threads, 0, launch.stream>>>(sums, piece, map, tokens);
    });
    check_launch("attention's gradient of keys");
}

void store_sums(const Launch& launch, const KeyGradientSums& sums, const SequenceOfToken* map,
                const Tensor& dk, const Tensor& dv, std::int64_t head) {
    if (dk.numel() == 0) return;
    with_floating(dk.dtype(), [&]<class T>() {
        store_rows<T><<<blocks_for(dk.size(0)), threads, 0, launch.stream>>>(
            sums, map, dk.size(0), elements<T>(dk) + head * dk.stride(1), dk.stride(0),
            elements<T>(dv) + head * dv.stride(1), dv.stride(0));
    });
    check_launch("attention's gradient of keys");
}

}  // namespace drover::cuda
