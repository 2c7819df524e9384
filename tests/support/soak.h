#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace drover::test {

/// Calls `play(seed)` with consecutive seeds until DROVER_SOAK_SECONDS have passed, at least once; without
/// that variable, for a few fixed seeds. DROVER_SOAK_SEED is the first seed, otherwise random. A failure ends
/// it and prints the command that repeats it alone.
template <class Play>
void soak(const std::string& program, const std::string& test, const Play& play) {
    using Clock = std::chrono::steady_clock;
    constexpr int usual_plays = 3;
    const char* const seconds = std::getenv("DROVER_SOAK_SECONDS");
    const char* const first = std::getenv("DROVER_SOAK_SEED");
    std::uint32_t seed = 1;
    if (first != nullptr)
        seed = static_cast<std::uint32_t>(std::strtoul(first, nullptr, 10));
    else if (seconds != nullptr)
        seed = std::random_device()() % 1'000'000'000;
    const auto end = Clock::now() + std::chrono::seconds(seconds != nullptr ? std::atol(seconds) : 0);
    int plays = 0;
    do {
        play(seed);
        ++plays;
        if (::testing::Test::HasFailure()) {
            std::printf(
                "Failed with seed %u; again with: DROVER_SOAK_SEED=%u DROVER_SOAK_SECONDS=0 %s "
                "--gtest_filter=%s\n",
                seed, seed, program.c_str(), test.c_str());
            return;
        }
        ++seed;
    } while (seconds != nullptr ? Clock::now() < end : plays < usual_plays);
    std::printf("%d runs, the last with seed %u\n", plays, seed - 1);
}

}  // namespace drover::test
