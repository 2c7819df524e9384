#include "core/random_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <vector>

namespace drover::random_kernels {
namespace {

bool same_bits(const FloatTile& a, const FloatTile& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST(RandomKernels, EveryInstructionSetGivesTheSameBits) {
    std::mt19937 engine(5);
    DrawTile draws;
    std::vector<std::uint32_t> words(2 * mt_words), windows(30000);
    std::generate(words.begin(), words.end(), std::ref(engine));
    std::generate(windows.begin(), windows.end(), std::ref(engine));
    const std::array<std::uint32_t, 8> starts = {0, 1, 7, 5000, 5003, 19936, 20000, 29000};
    const Kernels& portable = kernels(Level::portable);
    for (const Level level : supported_levels()) {
        const Kernels& tested = kernels(level);
        for (int round = 0; round < 100; ++round) {
            std::generate(draws.begin(), draws.end(), std::ref(engine));
            // The ends of the unit interval and the quarters of the circle.
            for (std::size_t i = 0; i < 64; ++i)
                draws[i] = (static_cast<std::uint32_t>(i / 8) << 21) - (i % 2);
            FloatTile expected, values;
            portable.normal_tile(draws, 0.25f, 0.02f, expected);
            tested.normal_tile(draws, 0.25f, 0.02f, values);
            ASSERT_TRUE(same_bits(values, expected));
            portable.uniform_tile(draws, -0.3f, 0.7f, expected);
            tested.uniform_tile(draws, -0.3f, 0.7f, values);
            ASSERT_TRUE(same_bits(values, expected));
            DrawTile expected_draws, tested_draws;
            portable.philox_tile(round, 9, 0xFFFFFF00u, expected_draws);
            tested.philox_tile(round, 9, 0xFFFFFF00u, tested_draws);
            ASSERT_EQ(tested_draws, expected_draws);
        }
        std::vector<std::uint32_t> expected_words = words, tested_words = words;
        portable.next_words(expected_words.data());
        tested.next_words(tested_words.data());
        EXPECT_EQ(tested_words, expected_words);
        portable.temper(words.data(), expected_words.data());
        tested.temper(words.data(), tested_words.data());
        EXPECT_EQ(tested_words, expected_words);
        portable.add_eight_windows(windows.data(), starts.data(), expected_words.data());
        tested.add_eight_windows(windows.data(), starts.data(), tested_words.data());
        EXPECT_EQ(tested_words, expected_words);
    }
}

TEST(RandomKernels, FusedOperationsRoundOnce) {
    std::mt19937 engine(12);
    DrawTile draws;
    std::generate(draws.begin(), draws.end(), std::ref(engine));
    FloatTile standard, values;
    kernels(Level::portable).normal_tile(draws, 0.0f, 1.0f, standard);
    // Scaled so that the sum is very close to halfway between two floats, where rounding to double first can
    // go wrong.
    const float mean = 1.0f + 0x1p-23f;
    int delicate = 0;
    for (std::size_t i = 0; i < tile_size; ++i) {
        const float deviation = 0x1p-24f / standard[i];
        const float expected = std::fma(standard[i], deviation, mean);
        const double rounded_first = static_cast<double>(standard[i]) * deviation + mean;
        delicate += static_cast<float>(rounded_first) != expected;
        for (const Level level : supported_levels()) {
            kernels(level).normal_tile(draws, mean, deviation, values);
            ASSERT_EQ(values[i], expected) << i;
        }
    }
    EXPECT_GT(delicate, 3);
}

TEST(RandomKernels, TransformIsAccurate) {
    std::mt19937 engine(6);
    for (int i = 0; i < 200000; ++i) {
        const std::uint32_t first = i < 64    ? static_cast<std::uint32_t>(i)
                                    : i < 128 ? 0u - static_cast<std::uint32_t>(i)
                                              : engine();
        const std::uint32_t second = engine();
        const auto [cosine, sine] = normal_pair(first, second);
        const double radius = std::sqrt(-2.0 * std::log(1.0 - (first & 0xFFFFFFu) * 0x1p-24));
        const float angle =
            static_cast<float>(2.0 * std::numbers::pi) * static_cast<float>((second & 0xFFFFFFu) * 0x1p-24);
        const double allowed = radius * 2.0e-7;
        ASSERT_NEAR(cosine, radius * std::cos(static_cast<double>(angle)), allowed) << first << " " << second;
        ASSERT_NEAR(sine, radius * std::sin(static_cast<double>(angle)), allowed) << first << " " << second;
    }
}

}  // namespace
}  // namespace drover::random_kernels
