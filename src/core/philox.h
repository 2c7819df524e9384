#pragma once

#include <cstdint>

namespace drover {

/// A counter or an output of Philox4x32.
struct PhiloxWords {
    std::uint32_t w0, w1, w2, w3;

    bool operator==(const PhiloxWords&) const = default;
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a
/// bijection of the 128-bit counter, chosen by the key, whose low half is the first key word.
[[gnu::always_inline]] constexpr PhiloxWords philox4x32(PhiloxWords counter, std::uint64_t key) {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.w0;
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.w2;
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter.w1 ^ key0,
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter.w3 ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

}  // namespace drover
