#include "run/lost_updates.h"

#include <gtest/gtest.h>

#include <random>

namespace drover {
namespace {

/// A weight is unchanged exactly if rounding restores it.
TEST(LostUpdates, AreThoseThatRoundingTakesBack) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<float> weights(20'000);
    for (float& weight : weights) weight = static_cast<float>(bf16(normal(generator)));
    for (const double update : {1e-6, 1e-5, 1e-4, 1e-3}) {
        double unchanged =
            0;  // the mean of both directions: towards zero, numbers behind a power of 2 are nearer
        for (const float weight : weights)
            for (const float direction : {-1.0f, 1.0f})
                unchanged +=
                    static_cast<float>(bf16(weight + direction * static_cast<float>(update))) == weight;
        EXPECT_NEAR(share_left_unchanged(weights, update), unchanged / 40'000, 0.01) << update;
    }
    EXPECT_NEAR(share_left_unchanged(weights, 1e-5), 1 - 0.155, 0.01);
    EXPECT_EQ(share_left_unchanged(weights, 1), 0);
    EXPECT_EQ(share_left_unchanged({}, 1e-5), 0);
    EXPECT_EQ(share_left_unchanged(std::vector<float>{0, 0}, 1e-30), 0);
}

TEST(LostUpdates, RmspropBeginsWithLargerOnes) {
    EXPECT_EQ(first_update(OptimizerSettings::named("adamw_torch", 0), 1e-5), 1e-5);
    EXPECT_EQ(first_update(OptimizerSettings::named("adafactor", 0), 1e-5), 1e-5);
    EXPECT_NEAR(first_update(OptimizerSettings::named("rmsprop", 0), 1e-5), 1e-4, 1e-8);
}

}  // namespace
}  // namespace drover
