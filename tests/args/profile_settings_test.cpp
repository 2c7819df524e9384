#include <gtest/gtest.h>

#include <cmath>

#include "args/parse_line.h"
#include "args/run_settings.h"

namespace drover {
namespace {

ProfileSettings settings_of(const std::string& line, Environment environment = {}) {
    return run_settings(test::parse_line(test::plain_run + line, {.environment = std::move(environment)}),
                        false)
        .profile;
}

TEST(ProfileSettings, AreOffUnlessAskedFor) {
    EXPECT_FALSE(settings_of("").on);
    EXPECT_FALSE(settings_of("--profile_logdir traces").on);
    EXPECT_FALSE(settings_of("", {{"PROFILE_EPOCH", "-1"}, {"PROFILE_STEP", "-1"}}).on);
}

TEST(ProfileSettings, CountStepsAfterTheWarmUp) {
    const ProfileSettings usual = settings_of("--profile");
    EXPECT_TRUE(usual.on);
    EXPECT_FALSE(usual.epoch || usual.step);
    EXPECT_EQ(usual.steps, 3);
    EXPECT_TRUE(std::isinf(usual.seconds)) << "long steps are counted too";
    const ProfileSettings more = settings_of("--profile_steps 10");
    EXPECT_TRUE(more.on);
    EXPECT_EQ(more.steps, 10);
    EXPECT_EQ(settings_of("--profile --profile_duration_ms 1500").seconds, 1.5);
}

TEST(ProfileSettings, BeginAfterAStepAndLastAWhile) {
    const ProfileSettings settings =
        settings_of("", {{"PROFILE_EPOCH", "0"}, {"PROFILE_STEP", "3"}, {"PROFILE_LOGDIR", "/tmp/traces"}});
    EXPECT_TRUE(settings.on);
    EXPECT_EQ(settings.epoch, 0);
    EXPECT_EQ(settings.step, 3);
    EXPECT_FALSE(settings.steps);
    EXPECT_EQ(settings.seconds, 20);
    EXPECT_EQ(settings.folder, std::filesystem::path("/tmp/traces"));
    EXPECT_EQ(settings_of("--profile_step 3 --profile_steps 2").steps, 2);
}

}  // namespace
}  // namespace drover
