#include "core/numpy_permutation.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace drover {
namespace {

__extension__ using Uint128 = unsigned __int128;

/// The words that numpy's SeedSequence makes of a seed for its PCG64.
std::array<std::uint64_t, 4> seed_words(std::uint64_t seed) {
    std::array<std::uint32_t, 4> pool{static_cast<std::uint32_t>(seed),
                                      static_cast<std::uint32_t>(seed >> 32)};
    std::uint32_t constant = 0x43b0d7e5;
    const auto hashed = [&](std::uint32_t value, std::uint32_t multiplier) {
        value ^= constant;
        constant *= multiplier;
        value *= constant;
        return value ^ value >> 16;
    };
    const auto mixed = [](std::uint32_t a, std::uint32_t b) {
        const std::uint32_t value = 0xca01f9dd * a - 0x4973f715 * b;
        return value ^ value >> 16;
    };
    for (std::uint32_t& word : pool) word = hashed(word, 0x931e8875);
    for (std::size_t from = 0; from < pool.size(); ++from)
        for (std::size_t to = 0; to < pool.size(); ++to)
            if (from != to) pool[to] = mixed(pool[to], hashed(pool[from], 0x931e8875));

    std::array<std::uint64_t, 4> words{};
    constant = 0x8b51f9dd;
    for (std::size_t half = 0; half < 2 * words.size(); ++half)
        words[half / 2] |= std::uint64_t{hashed(pool[half % pool.size()], 0x58f38ded)} << 32 * (half % 2);
    return words;
}

/// numpy's PCG64: a 128-bit congruential generator whose output is folded and rotated (XSL-RR).
class Pcg64 {
  public:
    explicit Pcg64(std::uint64_t seed) {
        const std::array<std::uint64_t, 4> words = seed_words(seed);
        increment_ = joined(words[2], words[3]) << 1 | 1;
        step();
        state_ += joined(words[0], words[1]);
        step();
    }

    /// The low half of an output, then its high half.
    std::uint32_t next32() {
        if (has_half_) {
            has_half_ = false;
            return half_;
        }
        const std::uint64_t next = next64();
        has_half_ = true;
        half_ = static_cast<std::uint32_t>(next >> 32);
        return static_cast<std::uint32_t>(next);
    }
    std::uint64_t next64() {
        step();
        return std::rotr(static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_),
                         static_cast<int>(state_ >> 122));
    }

    /// Uniform in [0, last]: outputs that are too large are drawn again.
    std::uint64_t up_to(std::uint64_t last) {
        const std::uint64_t mask = std::bit_ceil(last + 1) - 1;
        for (;;) {
            const std::uint64_t value = (last <= 0xFFFFFFFFu ? next32() : next64()) & mask;
            if (value <= last) return value;
        }
    }

  private:
    static Uint128 joined(std::uint64_t high, std::uint64_t low) { return Uint128{high} << 64 | low; }
    void step() { state_ = state_ * joined(2549297995355413924u, 4865540595714422341u) + increment_; }

    Uint128 state_ = 0, increment_ = 0;
    bool has_half_ = false;
    std::uint32_t half_ = 0;
};

}  // namespace

std::vector<std::int64_t> numpy_permutation(std::int64_t count, std::uint64_t seed) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    Pcg64 generator(seed);
    for (std::size_t last = order.size(); last-- > 1;) std::swap(order[last], order[generator.up_to(last)]);
    return order;
}

}  // namespace drover
