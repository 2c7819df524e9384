#include "core/mt19937_jump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace drover {
namespace {

TEST(Mt19937Jump, CharacteristicPolynomialAnnihilatesTheSequence) {
    const auto exponents = mt19937_jump::characteristic_exponents();
    ASSERT_EQ(exponents.size(), 135u);
    ASSERT_EQ(exponents.back(), mt19937_jump::degree);
    std::mt19937 engine(2024);
    std::vector<std::uint32_t> outputs(mt19937_jump::degree + 2000);
    std::generate(outputs.begin(), outputs.end(), std::ref(engine));
    for (std::size_t begin = 0; begin < 2000; ++begin) {
        std::uint32_t sum = 0;
        for (const std::size_t exponent : exponents) sum ^= outputs[begin + exponent];
        ASSERT_EQ(sum, 0u) << begin;
    }
}

TEST(Mt19937Jump, SmallPowersAreWhatTheySay) {
    for (const std::uint64_t power : {0ull, 1ull, 64ull, 16383ull, 16384ull, 16385ull, 19935ull, 19936ull}) {
        mt19937_jump::Polynomial expected{};
        expected[power / 64] = std::uint64_t{1} << (power % 64);
        EXPECT_EQ(mt19937_jump::power_of_x(power), expected) << power;
    }
    mt19937_jump::Polynomial lower_terms{};
    for (const std::size_t exponent : mt19937_jump::characteristic_exponents()) {
        if (exponent < mt19937_jump::degree)
            lower_terms[exponent / 64] |= std::uint64_t{1} << (exponent % 64);
    }
    EXPECT_EQ(mt19937_jump::power_of_x(mt19937_jump::degree), lower_terms);
}

}  // namespace
}  // namespace drover
