#include "train/callbacks/signal_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// In a separate process: ends with 0 if the signal of a step makes the run save and stop.
[[noreturn]] void end_a_step() {
    SignalThread signals;
    SignalWatch watch(signals);
    const TrainerSettings settings;
    const StepPlan plan{};
    const TrainerState state;
    const ParameterCounts parameters;
    TrainerControl control;
    TrainerView view{settings, plan, state, parameters, control};
    watch.on_train_begin(view);
    watch.on_step_end(view, {});
    if (control.should_save || control.interrupted) std::_Exit(4);
    kill(getpid(), SIGTERM);
    for (int i = 0; i < 3000 && signals.end_asked() == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    watch.on_train_begin(view);  // of the same run: earlier signals are not forgotten
    watch.on_step_end(view, {});
    const bool stops = control.should_save && control.interrupted && control.should_training_stop;
    std::_Exit(stops && watch.release() == 0 && watch.release() == 0 ? 0 : 5);
}

TEST(SignalWatches, LetTheRunSaveAndStop) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(end_a_step(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace drover
