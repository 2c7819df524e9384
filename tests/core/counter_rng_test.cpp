#include "core/counter_rng.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

namespace drover {
namespace {

constexpr std::uint64_t leaf = leaf_hash("model.layers.0.self_attn.q_proj.weight");

std::vector<float> normals(const CounterRng& generator, std::uint64_t begin, std::size_t count) {
    std::vector<float> out(count);
    generator.fill_normal(leaf, begin, out, 0.0f, 1.0f);
    return out;
}

TEST(Philox, KnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
    EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull),
              (PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
    // Digits of pi.
    EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822ull),
              (PhiloxWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(CounterRng, LeafHashIsFnv1a) {
    static_assert(leaf_hash("") == 0xcbf29ce484222325u);
    static_assert(leaf_hash("a") == 0xaf63dc4c8601ec8cu);
    static_assert(leaf_hash("foobar") == 0x85944171f73967e8u);
    EXPECT_EQ(leaf_hash("\xC3\xA9"), leaf_hash(std::string_view("\xC3\xA9", 2)));
}

TEST(CounterRng, EveryPartOfTheAddressMatters) {
    std::set<std::uint64_t> seen;
    int addresses = 0;
    for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32}) {
        for (const std::uint64_t step : {0ull, 1ull, 2ull, 1ull << 40}) {
            for (const std::uint64_t hash : {leaf, leaf + 1, leaf_hash("lm_head.weight")}) {
                for (const std::uint64_t block : {0ull, 1ull, 1ull << 32, (1ull << 32) + 1}) {
                    const PhiloxWords words = CounterRng(seed, step).at(hash, block);
                    seen.insert(std::uint64_t{words.w0} << 32 | words.w1);
                    ++addresses;
                }
            }
        }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(addresses));
}

TEST(CounterRng, BulkIsTheSameAsOneByOne) {
    const CounterRng generator(42, 7);
    // The second start crosses into the high word of the counter.
    for (const std::uint64_t begin : {0ull, 5ull, (1ull << 34) - 1030, (1ull << 34) + 3}) {
        const std::size_t count = 2100;
        std::vector<std::uint32_t> bits(count);
        std::vector<float> uniforms(count);
        generator.fill_bits(leaf, begin, bits);
        generator.fill_uniform(leaf, begin, uniforms);
        const std::vector<float> values = normals(generator, begin, count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t element = begin + i;
            ASSERT_EQ(bits[i], generator.bits(leaf, element)) << element;
            ASSERT_EQ(uniforms[i], generator.uniform(leaf, element)) << element;
            const bool is_cosine = element % 16 < 8;
            const auto [cosine, sine] = generator.normal_pair(leaf, is_cosine ? element : element - 8);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]),
                      std::bit_cast<std::uint32_t>(is_cosine ? cosine : sine))
                << element;
        }
    }
}

TEST(CounterRng, BlocksHoldFourElements) {
    const CounterRng generator(1, 2);
    const PhiloxWords words = generator.at(leaf, 1000);
    EXPECT_EQ(generator.bits(leaf, 4000), words.w0);
    EXPECT_EQ(generator.bits(leaf, 4001), words.w1);
    EXPECT_EQ(generator.bits(leaf, 4002), words.w2);
    EXPECT_EQ(generator.bits(leaf, 4003), words.w3);
}

TEST(CounterRng, AnyPartEqualsThatPartOfTheWhole) {
    const CounterRng generator(3, 0);
    const std::vector<float> whole = normals(generator, 0, 10000);
    for (const std::size_t begin : {0u, 1u, 15u, 1023u, 1024u, 5000u}) {
        for (const std::size_t size : {0u, 1u, 17u, 1024u, 4999u}) {
            const std::vector<float> part = normals(generator, begin, size);
            ASSERT_TRUE(size == 0 ||
                        std::memcmp(part.data(), whole.data() + begin, size * sizeof(float)) == 0)
                << begin << " " << size;
        }
    }
}

TEST(CounterRng, ThreadCountDoesNotShow) {
    const CounterRng generator(3, 1);
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const std::vector<float> one = normals(generator, 77, 200001);
    omp_set_num_threads(3);
    const std::vector<float> three = normals(generator, 77, 200001);
    omp_set_num_threads(before);
    EXPECT_EQ(std::memcmp(one.data(), three.data(), one.size() * sizeof(float)), 0);
}

TEST(CounterRng, MomentsAndCorrelationAreThoseOfIndependentNormals) {
    const std::size_t count = 1u << 20;
    std::vector<float> values(count);
    CounterRng(9, 0).fill_normal(leaf, 0, values, 1.0f, 0.5f);
    const std::vector<float> other_step = normals(CounterRng(9, 1), 0, count);
    double mean = 0, square = 0, fourth = 0, lag_1 = 0, lag_8 = 0, between_steps = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto z = [&](std::size_t index) { return (values[index % count] - 1.0) / 0.5; };
        mean += z(i);
        square += z(i) * z(i);
        fourth += z(i) * z(i) * z(i) * z(i);
        lag_1 += z(i) * z(i + 1);
        lag_8 += z(i) * z(i + 8);
        between_steps += z(i) * other_step[i];
    }
    const double n = static_cast<double>(count);
    const double tolerance = 5.0 / std::sqrt(n);
    EXPECT_NEAR(mean / n, 0.0, tolerance);
    EXPECT_NEAR(square / n, 1.0, tolerance * std::sqrt(2.0));
    EXPECT_NEAR(fourth / n, 3.0, tolerance * std::sqrt(96.0));
    EXPECT_NEAR(lag_1 / n, 0.0, tolerance);
    EXPECT_NEAR(lag_8 / n, 0.0, tolerance);
    EXPECT_NEAR(between_steps / n, 0.0, tolerance);
}

TEST(CounterRng, EveryBitIsSetHalfTheTime) {
    std::vector<std::uint32_t> bits(1u << 16);
    CounterRng(5, 5).fill_bits(leaf, 0, bits);
    for (unsigned position = 0; position < 32; ++position) {
        const auto set = static_cast<double>(std::accumulate(
            bits.begin(), bits.end(), 0u,
            [=](unsigned sum, std::uint32_t word) { return sum + ((word >> position) & 1u); }));
        EXPECT_NEAR(set, 32768.0, 5.0 * 128.0) << position;
    }
}

}  // namespace
}  // namespace drover
