#pragma once

#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "backend/cuda/kernels/early_launch.cuh"

/// Sorts tokens by their row of the embedding's gradient, and zeroes the rows that no token has. The tokens
/// of a step are few for a GPU: one block sorts them in less time than the launches of a sort by many blocks
/// take, and the others write the zeros meanwhile.
namespace drover::cuda {

inline constexpr int ordering_threads = 1024, sorted_per_thread = 16;
inline constexpr std::int64_t sorted_by_a_block = ordering_threads * sorted_per_thread;
using BlockSort = cub::BlockRadixSort<std::uint32_t, ordering_threads, sorted_per_thread>;

/// Key of each token: its row of dweight, or `vocabulary` where it has none. `occurs` becomes 1 for rows that
/// some token has.
static __global__ void make_keys(const std::int32_t* ids, std::int64_t tokens, std::int64_t first_id,
                                 std::int64_t padding_id, std::int64_t vocabulary, std::uint32_t* keys,
                                 std::int32_t* order, std::uint8_t* occurs) {
    const std::int64_t token = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    const std::int64_t id = ids[token], row = id - first_id;
    const bool held = row >= 0 && row < vocabulary && id != padding_id;
    keys[token] = static_cast<std::uint32_t>(held ? row : vocabulary);
    order[token] = static_cast<std::int32_t>(token);
    if (held) occurs[row] = 1;
}

/// Keys and their tokens, and where the sorted ones go. A key has `key_bits` bits.
struct TokenKeys {
    const std::uint32_t* keys;
    std::uint32_t* sorted_keys;
    std::int32_t* sorted_tokens;
    std::int64_t tokens;
    int key_bits;

    /// Bits of a token's number.
    __host__ __device__ int token_bits() const {
        int bits = 1;
        while (((tokens - 1) >> bits) > 0) ++bits;
        return bits;
    }
    /// Key and token are sorted as one word.
    bool fit_a_block() const { return tokens <= sorted_by_a_block && token_bits() + key_bits <= 32; }
};

/// Stable: tokens with the same key keep their order.
__device__ inline void sort_in_block(const TokenKeys& of, BlockSort::TempStorage& storage) {
    const int token_bits = of.token_bits();
    std::uint32_t words[sorted_per_thread];
#pragma unroll
    for (int i = 0; i < sorted_per_thread; ++i) {
        const std::uint32_t token = threadIdx.x * sorted_per_thread + i;
        // Entries past the last token get the largest key.
        words[i] = token < of.tokens ? of.keys[token] << token_bits | token : 0xFFFFFFFFu;
    }
    BlockSort(storage).SortBlockedToStriped(words, token_bits, token_bits + of.key_bits);
#pragma unroll
    for (int i = 0; i < sorted_per_thread; ++i) {
        const int at = i * ordering_threads + threadIdx.x;
        if (at >= of.tokens) break;
        of.sorted_keys[at] = words[i] >> token_bits;
        of.sorted_tokens[at] = static_cast<std::int32_t>(words[i] & ((1u << token_bits) - 1));
    }
}

/// A matrix as bytes; rows are units of 16, or of 2 where they are not aligned.
struct ClearedRows {
    unsigned char* data;
    std::int64_t rows, units, stride;  ///< stride in bytes
    const std::uint8_t* occurs;        ///< rows that stay as they are

    template <class Unit>
    __device__ void clear(std::int64_t row) const {
        if (row >= rows || occurs[row]) return;
        Unit* const to = reinterpret_cast<Unit*>(data + row * stride);
#pragma unroll 4
        for (std::int64_t i = threadIdx.x % 32; i < units; i += 32) to[i] = Unit{};
    }
};

/// The first `sorting` blocks (one or none) sort; in the others, each warp clears a row.
static __global__ void __launch_bounds__(ordering_threads)
    sort_and_clear(const TokenKeys keys, const ClearedRows cleared, const bool wide, const unsigned sorting) {
    extern __shared__ uint4 shared[];
    wait_for_earlier_kernels();
    if (blockIdx.x < sorting) return sort_in_block(keys, reinterpret_cast<BlockSort::TempStorage&>(shared));
    const std::int64_t row = std::int64_t{blockIdx.x - sorting} * (ordering_threads / 32) + threadIdx.x / 32;
    if (wide)
        cleared.clear<uint4>(row);
    else
        cleared.clear<std::uint16_t>(row);
}

}  // namespace drover::cuda
