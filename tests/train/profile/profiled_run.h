#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "train/profile/profiler.h"
#include "train/state/trainer_settings.h"

namespace drover::test {

/// Calls a profiler as the loop does, around steps that the test makes.
struct ProfiledSteps {
    TrainerSettings settings{.per_device_train_batch_size = 4};
    StepPlan plan = make_step_plan(settings, 500, 2000);
    TrainerState state = TrainerState::begin(settings, 1500, 3);
    ParameterCounts parameters;
    TrainerControl control;
    TrainerView view{settings, plan, state, parameters, control};

    template <class Step>
    void run(Profiler& profiler, int steps, const Step& step) {
        for (int i = 0; i < steps; ++i) {
            profiler.on_step_begin(view);
            step();
            ++state.global_step;
            profiler.on_step_end(view, {.epoch = (state.global_step - 1) / plan.updates_per_epoch,
                                        .step_in_epoch = (state.global_step - 1) % plan.updates_per_epoch});
        }
    }
};

inline std::string unzipped(const std::filesystem::path& path) {
    std::string text;
    const gzFile file = gzopen(path.c_str(), "rb");
    char buffer[4096];
    for (int bytes; (bytes = gzread(file, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(bytes));
    gzclose(file);
    return text;
}

/// The numbers of the steps that a profile has.
inline std::vector<std::int64_t> steps_of(const Profiler& profiler) {
    std::vector<std::int64_t> numbers;
    if (profiler.profile())
        for (const ProfileStep& step : profiler.profile()->steps) numbers.push_back(step.number);
    return numbers;
}

/// Spans of a lane are sorted, lie in the scopes that they name as theirs, and overlap nothing else.
inline void expect_nested(const ProfileLane& lane) {
    std::vector<const ProfileSpan*> around;
    double last = 0;
    for (const ProfileSpan& span : lane.spans) {
        ASSERT_LE(span.begin, span.end) << span.name;
        ASSERT_LE(last, span.begin) << lane.name << ": " << span.name;
        last = span.begin;
        if (span.parent >= 0) {
            const ProfileSpan& parent = lane.spans[static_cast<std::size_t>(span.parent)];
            ASSERT_EQ(parent.kind, ProfileSpan::Kind::scope) << span.name;
            ASSERT_LE(parent.begin, span.begin) << span.name << " in " << parent.name;
            ASSERT_GE(parent.end, span.end) << span.name << " in " << parent.name;
        }
        while (!around.empty() && around.back()->end <= span.begin) around.pop_back();
        ASSERT_TRUE(around.empty() || span.end <= around.back()->end)
            << lane.name << ": " << span.name << " overlaps " << around.back()->name;
        around.push_back(&span);
    }
}

}  // namespace drover::test
