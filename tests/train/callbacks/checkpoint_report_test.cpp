#include "train/callbacks/checkpoint_report.h"

#include <gtest/gtest.h>

#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// A rank's output when one checkpoint could not be written and another could not be removed.
std::string said_by(bool is_first) {
    const TrainerSettings settings{.is_world_process_zero = is_first};
    const StepPlan plan{};
    const TrainerState state;
    const ParameterCounts parameters;
    TrainerControl control;
    TrainerView view{settings, plan, state, parameters, control};
    CheckpointReport report;
    testing::internal::CaptureStderr();
    report.on_save_failed(view, "out/checkpoint-7", "The disk is full.");
    report.on_rotation_failed(view, "It cannot be removed.");
    return testing::internal::GetCapturedStderr();
}

TEST(CheckpointReport, IsGivenByTheFirstProcess) {
    const std::string text = said_by(true);
    EXPECT_TRUE(text.starts_with("checkpoint-7 could not be written")) << text;
    EXPECT_NE(text.find("The disk is full."), std::string::npos) << text;
    EXPECT_NE(text.find("It cannot be removed."), std::string::npos) << text;
    EXPECT_EQ(said_by(false), "");
}

}  // namespace
}  // namespace drover
