#include "generate/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "core/error.h"
#include "support/errors.h"

namespace drover {
namespace {

/// How often each token is chosen in `count` steps.
std::map<std::int32_t, int> draws(const std::vector<float>& logits, const SamplingSettings& settings,
                                  int count) {
    std::map<std::int32_t, int> found;
    for (int step = 0; step < count; ++step) ++found[choose_token(logits, settings, step)];
    return found;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
    return logits;
}

TEST(Sampling, GreedyTakesTheFirstOfTheLargest) {
    EXPECT_EQ(choose_token(std::vector<float>{0, 5, 5, -1}, {}, 0), 1);
}

TEST(Sampling, FrequenciesAreProbabilities) {
    const std::vector<double> p = {0.5, 0.05, 0.3, 0.15};
    const auto found = draws(logs(p), {.temperature = 1}, 20000);
    for (std::size_t i = 0; i < p.size(); ++i)
        EXPECT_NEAR(found.at(static_cast<std::int32_t>(i)) / 20000.0, p[i], 0.015) << i;
}

TEST(Sampling, TemperatureSharpens) {
    // Probabilities squared and normalised: 0.8 and 0.2.
    EXPECT_NEAR(draws(logs({2. / 3, 1. / 3}), {.temperature = 0.5}, 20000).at(0) / 20000.0, 0.8, 0.015);
}

TEST(Sampling, TopKKeepsTheLikeliestAndTies) {
    EXPECT_EQ(draws(logs({0.4, 0.1, 0.3, 0.2}), {.temperature = 1, .top_k = 2}, 2000).size(), 2u);
    const auto ties = draws(logs({0.4, 0.2, 0.2, 0.2}), {.temperature = 1, .top_k = 2}, 2000);
    EXPECT_EQ(ties.size(), 4u);
    EXPECT_EQ(draws(logs({0.4, 0.1, 0.3, 0.2}), {.temperature = 1, .top_k = 1}, 500).at(0), 500);
}

TEST(Sampling, TopPKeepsTheLikeliestThatReachIt) {
    const std::vector<float> logits = logs({0.15, 0.4, 0.05, 0.4});
    EXPECT_EQ(draws(logits, {.temperature = 1, .top_p = 0.7}, 2000).size(), 2u);
    EXPECT_EQ(draws(logits, {.temperature = 1, .top_p = 0.9}, 2000).size(), 3u);
    EXPECT_EQ(draws(logits, {.temperature = 1, .top_p = 1}, 2000).size(), 4u);
    EXPECT_EQ(draws(logs({0.6, 0.4}), {.temperature = 1, .top_p = 0.01}, 500).at(0), 500);
}

/// As in transformers, tokens are dropped as long as their sum is at most 1 − p: equal probabilities are
/// exact.
TEST(Sampling, TopPDropsWhatReachesTheRestExactly) {
    EXPECT_EQ(draws({0, 0}, {.temperature = 1, .top_p = 0.5}, 500).size(), 1u);
    EXPECT_EQ(draws({0, 0, 0, 0}, {.temperature = 1, .top_p = 0.75}, 2000).size(), 3u);
    EXPECT_EQ(draws({0, 0, 0, 0}, {.temperature = 1, .top_p = 0.5}, 2000).size(), 2u);
    EXPECT_EQ(draws({0, 0, 0, 0}, {.temperature = 1, .top_p = 0.51}, 2000).size(), 3u);
}

TEST(Sampling, TopPLooksAtWhatTopKAndTemperatureLeft) {
    // Of the remaining two, the first has 0.4 / 0.7 = 0.57.
    const std::vector<float> logits = logs({0.4, 0.3, 0.2, 0.1});
    EXPECT_EQ(draws(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}, 500).size(), 1u);
    EXPECT_EQ(draws(logits, {.temperature = 1, .top_p = 0.5}, 500).size(), 2u);
}

TEST(Sampling, TheSeedDecides) {
    const std::vector<float> logits(50, 0.f);
    const auto texts = [&](std::uint64_t seed, std::int64_t sequence) {
        std::vector<std::int32_t> ids;
        for (int step = 0; step < 30; ++step)
            ids.push_back(choose_token(logits, {.temperature = 1, .seed = seed}, step, sequence));
        return ids;
    };
    EXPECT_EQ(texts(1, 0), texts(1, 0));
    EXPECT_NE(texts(1, 0), texts(2, 0));
    EXPECT_NE(texts(1, 0), texts(1, 1));
}

TEST(Sampling, SettingsAreChecked) {
    test::expect_error<UsageError>([&] { check_sampling({.temperature = -1}); }, {"--temperature is -1"});
    test::expect_error<UsageError>([&] { check_sampling({.top_k = -1}); }, {"--top_k is -1"});
    test::expect_error<UsageError>([&] { check_sampling({.top_p = 0}); }, {"--top_p is 0"});
    test::expect_error<UsageError>([&] { check_sampling({.top_p = 1.5}); }, {"--top_p is 1.5"});
    test::expect_error(
        [&] {
            choose_token(std::vector<float>{0, std::nanf("")}, {}, 0);
        },
        {"logits are not numbers"});
}

}  // namespace
}  // namespace drover
