#pragma once

#include <cstdint>

/// How the operands of a warpgroup's products lie in shared memory, and where in a ring of buffers.
namespace drover::cuda {

/// A position in a ring of `stages` buffers.
template <int stages>
struct RingPlace {
    int stage = 0;
    std::uint32_t parity = 0;

    __device__ void next() {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
    }
};

/// Which dimension of an operand is contiguous: the one that is summed over, or the other.
enum class Contiguous { depth, breadth };

/// The place of an operand that starts at an address of shared memory, where rows of 128 bytes lie in groups
/// of eight with their 16-byte pieces exchanged as the copy engine does it (SWIZZLE_128B). Groups of rows
/// follow each other; with Contiguous::breadth, which only 16-bit elements have, a row has 64 elements of the
/// breadth, and the next 64 begin `block_bytes` later.
template <Contiguous contiguous>
__device__ inline std::uint64_t operand_place(std::uint32_t start, std::uint32_t block_bytes) {
    constexpr std::uint64_t group_bytes = 1024, exchanged_in_128_bytes = 1;
    const std::uint64_t blocks = contiguous == Contiguous::depth ? 1 : block_bytes >> 4;
    return (start & 0x3FFFFu) >> 4 | blocks << 16 | group_bytes >> 4 << 32 | exchanged_in_128_bytes << 62;
}
/// How far an operand's place advances from one product to the next, of 16 elements of 16 bits in depth, or
/// of 32 FP8 numbers.
template <Contiguous contiguous>
inline constexpr std::uint64_t product_step = (contiguous == Contiguous::depth ? 32 : 16 * 128) >> 4;

/// Where byte `at` of a row of 128 bytes lies in such an operand, from its start.
__device__ inline std::uint32_t exchanged_place(std::uint32_t row, std::uint32_t at) {
    return row * 128 + (at ^ row % 8 * 16);
}

}  // namespace drover::cuda
