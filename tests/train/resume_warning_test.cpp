#include "train/resume_warning.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(ResumeWarning, NamesWhatIsNotAsInTheCheckpoint) {
    TrainerSettings settings;
    settings.max_steps = 100;
    settings.logging_steps = 0.1;  // of all steps: 10
    settings.finish();
    TrainerState state = TrainerState::begin(settings, 100, 1);
    state.global_step = 40;
    EXPECT_EQ(resume_warning(settings, state), "");

    state.logging_steps = 25;
    state.train_batch_size = 4;
    const std::string text = resume_warning(settings, state);
    EXPECT_NE(text.find("--logging_steps is 10, but 25 in the checkpoint"), std::string::npos) << text;
    EXPECT_NE(text.find("--per_device_train_batch_size is 8, but 4"), std::string::npos) << text;
    EXPECT_EQ(text.find("save_steps"), std::string::npos) << text;
}

}  // namespace
}  // namespace drover
