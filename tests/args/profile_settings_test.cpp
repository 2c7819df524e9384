#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "args/parse_line.h"
#include "args/run_settings.h"

namespace drover {
namespace {

ProfileSettings settings_of(const std::string& line, Environment environment = {}) {
    return run_settings(test::parse_line(test::plain_run + line, {.environment = std::move(environment)}))
        .profile;
}

TEST(ProfileSettings, AreOffUnlessAskedFor) {
    EXPECT_FALSE(settings_of("").on);
    EXPECT_FALSE(settings_of("--profile_logdir traces").on);
    EXPECT_FALSE(settings_of("--no_profile --profile_steps 2").on);
    EXPECT_FALSE(settings_of("--no_profile", {{"PROFILE_STEP", "3"}}).on);
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

TEST(SettingsRecord, LeavesOutWhatTheEnvironmentSaysOfTheMachine) {
    const auto recorded = [](const std::string& flags) {
        return run_settings(
                   test::parse_line(test::plain_run + flags, {.environment = {{"OMP_NUM_THREADS", "3"},
                                                                              {"PJRT_DEVICE", "CPU"},
                                                                              {"PROFILE_STEP", "7"}}}))
            .record;
    };
    const SettingsRecord record = recorded("");
    EXPECT_TRUE(record.values.at("threads").is_null());
    EXPECT_EQ(record.values.at("device"), "auto");
    EXPECT_EQ(record.values.at("profile_step"), 7);
    // Its processes must still agree about them.
    EXPECT_NE(std::ranges::find(record.alike, std::pair<std::string, std::string>("--device", "\"cpu\"")),
              record.alike.end());
    EXPECT_EQ(recorded("--threads 3 --device cpu").values.at("threads"), 3);
    EXPECT_EQ(recorded("--threads 3 --device cpu").values.at("device"), "cpu");
}

}  // namespace
}  // namespace drover
