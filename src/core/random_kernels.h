#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// The inner loops of the random number generators, compiled once per instruction set and chosen at run time.
/// Every set gives the same bits.
namespace drover::random_kernels {

/// Words of MT19937's state.
inline constexpr std::size_t mt_words = 624;

/// Elements that one call of a distribution kernel makes. A fixed count leaves the vectoriser no remainder
/// loop.
inline constexpr std::size_t tile_size = 1024;

/// Elements of one Box-Muller block: element j (j < 8) is a cosine, element j + 8 the sine of the same pair
/// of draws.
inline constexpr std::size_t block_size = 16;

using DrawTile = std::array<std::uint32_t, tile_size>;
using FloatTile = std::array<float, tile_size>;

enum class Level : std::uint8_t { portable, avx2, avx512 };

struct Kernels {
    /// Continues the word sequence of MT19937: given words[0 … 623], writes words[624 … 1247].
    void (*next_words)(std::uint32_t* words);

    /// outputs[k] = tempering of words[k], k < 624.
    void (*temper)(const std::uint32_t* words, std::uint32_t* outputs);

    /// sum[k] ^= words[start + k] for each of the eight `starts` and k < 624.
    void (*add_eight_windows)(const std::uint32_t* words, const std::uint32_t* starts, std::uint32_t* sum);

    /// Uniforms in [low, high), one per draw: the low 24 bits; a value that rounds up to `high` becomes
    /// `low`.
    void (*uniform_tile)(const DrawTile& draws, float low, float high, FloatTile& out);

    /// Normals, block by block: draws j and j + 8 of a block give its elements j and j + 8.
    void (*normal_tile)(const DrawTile& draws, float mean, float standard_deviation, FloatTile& out);

    /// Words of the Philox4x32-10 blocks first_block … first_block + 255 of a stream; first_block is a
    /// multiple of 256.
    void (*philox_tile)(std::uint64_t key, std::uint64_t stream, std::uint64_t first_block, DrawTile& out);
};

/// The sets that this processor can run, slowest first.
std::span<const Level> supported_levels();

const Kernels& kernels(Level level);

/// The kernels of the fastest supported set.
const Kernels& kernels();

/// The standard normals (cosine, sine) that normal_tile makes of two draws.
std::pair<float, float> normal_pair(std::uint32_t first_draw, std::uint32_t second_draw);

}  // namespace drover::random_kernels
