#pragma once

#include "backend/cuda/kernels/device_code.cuh"

/// Results of a warpgroup's products, rounded to 16 bits and stored 16 bytes at a time.
namespace drover::cuda {

/// The words of four neighbouring lanes exchanged: lane t gets word t of all four, in their order.
__device__ inline void exchange_in_four(std::uint32_t (&word)[4]) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
        const bool upper = lane & bit;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? word[i] : word[i | bit], bit);
            word[i] = upper ? got : word[i];
            word[i | bit] = upper ? word[i | bit] : got;
        }
    }
}

/// Two neighbours in a row, read and written at once.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T element[2];
};

/// Two neighbours in a row, rounded, in a word.
template <class T>
__device__ inline std::uint32_t rounded_pair(float first, float second) {
    return __builtin_bit_cast(std::uint32_t, Pair<T>{from_float<T>(first), from_float<T>(second)});
}

/// Stores the first `left` columns of one of the two rows that a thread has of 64 × `columns` sums: row
/// 16 · (t / 32) + t % 32 / 4 + 8 · half, whose first column is at `line`. All lanes of a warp call it;
/// `left` is a multiple of 8, or not positive.
template <int columns, class T>
__device__ inline void store_rounded(const float (&sum)[columns / 2], int half, T* line, int left) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int four = 0; four < columns / 32; ++four) {
        std::uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = 4 * (4 * four + i) + 2 * half;
            word[i] = rounded_pair<T>(sum[at], sum[at + 1]);
        }
        exchange_in_four(word);
        const int at = 32 * four + 8 * (lane % 4);
        if (at < left) *reinterpret_cast<uint4*>(line + at) = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

}  // namespace drover::cuda
