#pragma once

#include <cstdint>
#include <type_traits>

namespace drover {

/// A counter or an output of Philox4x32.
struct PhiloxWords {
    std::uint32_t w0, w1, w2, w3;

    bool operator==(const PhiloxWords&) const = default;
};

/// The full 64-bit product of two words.
[[gnu::always_inline]] constexpr std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
    // nvcc compiles the plain product to a 64-bit one that also adds the zero upper halves.
    if (!std::is_constant_evaluated()) {
        std::uint64_t product = 0;
        asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
        return product;
    }
#endif
    return std::uint64_t{a} * b;
}

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a
/// bijection of the 128-bit counter, chosen by the key, whose low half is the first key word.
[[gnu::always_inline]] constexpr PhiloxWords philox4x32(PhiloxWords counter, std::uint64_t key) {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = wide_product(0xD2511F53u, counter.w0);
        const std::uint64_t product1 = wide_product(0xCD9E8D57u, counter.w2);
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter.w1 ^ key0,
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter.w3 ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/// The high half of the counter for a leaf's numbers in a step: a bijection of the step for a fixed leaf (an
/// odd multiple of it, then the finaliser of SplitMix64).
[[gnu::always_inline]] constexpr std::uint64_t philox_stream(std::uint64_t leaf, std::uint64_t step) {
    std::uint64_t mixed = leaf + (step + 1) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

}  // namespace drover
