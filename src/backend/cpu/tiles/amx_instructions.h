#pragma once

#include <cstdint>

/// AMX's eight tile registers of 16 rows × 64 bytes. A tile holds 16 × 16 fp32 sums, 16 rows × 32 bf16 of the
/// left operand, or 16 pairs of depth × 16 columns × 2 bf16 of the right one. Written as assembly: the code
/// around them needs no compiler flags for AMX.
namespace drover::cpu::tiles {

inline constexpr int tile_bytes = 1024;

/// For this thread: palette 1 as the architecture defines it, whatever CPUID says about tiles. All tiles
/// become zero.
inline void configure_tiles() {
    struct alignas(64) Configuration {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static_assert(sizeof(Configuration) == 64);
    static const Configuration configuration;
    asm volatile("ldtilecfg %0" ::"m"(configuration));
}

/// A finished thread releases its tiles, so that the kernel need not save them.
inline void release_tiles() {
    asm volatile("tilerelease");
}

template <int tile>
inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

/// `row` bytes from one row of the tile to the next.
template <int tile>
inline void load_tile(const void* from, std::int64_t row = 64) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row), "i"(tile) : "memory");
}

template <int tile>
inline void store_tile(void* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(std::int64_t{64}), "i"(tile) : "memory");
}

/// sums += left · right
template <int sums, int left, int right>
inline void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}

}  // namespace drover::cpu::tiles
