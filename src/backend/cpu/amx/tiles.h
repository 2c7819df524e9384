#pragma once

#include <cstdint>
#include <cstring>

/// AMX's eight tile registers of 16 rows × 64 bytes. A tile holds 16 × 16 fp32 sums, 16 rows × 32 bf16 of the
/// left operand, or 16 pairs of depth × 16 columns × 2 bf16 of the right one.
namespace drover::cpu::amx {

inline constexpr int tile_bytes = 1024;

/// The real ones. Only where usable() (probe.h) says so; each thread configures its own before it uses them.
struct HardwareTiles {
    static void configure() {
        // Palette 1 as the architecture defines it: byte 0 its number, then from byte 16 the bytes per row of
        // each tile and from byte 48 its rows.
        struct alignas(64) Configuration {
            std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
            std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        };
        static_assert(sizeof(Configuration) == 64);
        static const Configuration configuration;
        asm volatile("ldtilecfg %0" ::"m"(configuration));
    }
    static void release() { asm volatile("tilerelease"); }

    template <int tile>
    static void zero() {
        asm volatile("tilezero %%tmm%c0" ::"i"(tile));
    }
    template <int tile>
    static void load(const void* from) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(std::int64_t{64}), "i"(tile)
                     : "memory");
    }
    template <int tile>
    static void store(void* to) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(std::int64_t{64}), "i"(tile) : "memory");
    }
    /// sums += left · right
    template <int sums, int left, int right>
    static void multiply() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
    }
};

/// The same in plain code, so that what is built on tiles can be tested on any machine.
struct EmulatedTiles {
    static void configure() {}
    static void release() {}

    template <int tile>
    static void zero() {
        std::memset(memory()[tile], 0, tile_bytes);
    }
    template <int tile>
    static void load(const void* from) {
        std::memcpy(memory()[tile], from, tile_bytes);
    }
    template <int tile>
    static void store(void* to) {
        std::memcpy(to, memory()[tile], tile_bytes);
    }
    template <int sums, int left, int right>
    static void multiply() {
        const auto fp32 = [](std::uint16_t bits) {
            return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
        };
        auto* c = reinterpret_cast<float*>(memory()[sums]);
        const auto* a = reinterpret_cast<const std::uint16_t*>(memory()[left]);
        const auto* b = reinterpret_cast<const std::uint16_t*>(memory()[right]);
        for (int row = 0; row < 16; ++row)
            for (int pair = 0; pair < 16; ++pair)
                for (int column = 0; column < 16; ++column)
                    for (int half = 0; half < 2; ++half)
                        c[row * 16 + column] +=
                            fp32(a[row * 32 + pair * 2 + half]) * fp32(b[pair * 32 + column * 2 + half]);
    }

  private:
    using Memory = unsigned char[8][tile_bytes];
    static Memory& memory() {
        alignas(64) static thread_local Memory tiles;
        return tiles;
    }
};

}  // namespace drover::cpu::amx
