#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "core/philox.h"

namespace drover {

/// 64-bit FNV-1a of a leaf's published name (bytes of UTF-8): the leaf's address in a CounterRng.
constexpr std::uint64_t leaf_hash(std::string_view name) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char character : name) {
        hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
    }
    return hash;
}

/// Random numbers without a state: each is a function of (seed, step, hash of the leaf's name, index of the
/// element in the whole leaf), so that they depend neither on the order of work nor on the layout of the
/// mesh. Two uses of noise on one leaf in one step need two names (say, "…weight" and "…weight/dropout").
///
/// Philox4x32-10 with the seed as key; the counter's low half is element / 4, its high half a mix of leaf and
/// step that is different for every step of a leaf. Element i has word i % 4 of its block.
class CounterRng {
  public:
    CounterRng(std::uint64_t seed, std::uint64_t step) : seed_(seed), step_(step) {}

    /// Words of elements 4·block … 4·block + 3.
    PhiloxWords at(std::uint64_t leaf, std::uint64_t block) const {
        const std::uint64_t stream = stream_of(leaf);
        return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                           static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                          seed_);
    }

    /// 32 random bits (for stochastic rounding).
    std::uint32_t bits(std::uint64_t leaf, std::uint64_t element) const;
    /// In [0, 1), a multiple of 2^-24.
    float uniform(std::uint64_t leaf, std::uint64_t element) const;
    /// The standard normals of elements first and first + 8, which share a Box-Muller transform; first % 16
    /// is below 8.
    std::pair<float, float> normal_pair(std::uint64_t leaf, std::uint64_t first) const;

    /// Elements begin … begin + out.size() - 1. Parallel with OpenMP.
    void fill_bits(std::uint64_t leaf, std::uint64_t begin, std::span<std::uint32_t> out) const;
    void fill_uniform(std::uint64_t leaf, std::uint64_t begin, std::span<float> out) const;
    void fill_normal(std::uint64_t leaf, std::uint64_t begin, std::span<float> out, float mean,
                     float standard_deviation) const;

  private:
    std::uint64_t stream_of(std::uint64_t leaf) const { return philox_stream(leaf, step_); }

    template <class Element, class Transform>
    void fill(std::uint64_t leaf, std::uint64_t begin, std::span<Element> out,
              const Transform& transform) const;

    std::uint64_t seed_;
    std::uint64_t step_;
};

}  // namespace drover
