#pragma once

#include <string_view>

#include "core/error.h"
#include "fuzz/accepts.h"
#include "parallel/schedule/csv.h"
#include "parallel/schedule/simulate.h"

namespace drover::test {

/// A schedule that is read is written as it was read, and runs to its end or names why it cannot.
inline bool accepts_pipeline_schedule(std::string_view bytes) {
    return accepts([&] {
        const PipelineSchedule schedule = parse_schedule_csv(bytes, "input");
        require(parse_schedule_csv(to_csv(schedule), "input") == schedule,
                "a schedule that is written otherwise");
        for (const int held : held_activations(schedule).of_stage) require(held >= 1, "a stage without work");
        const PipelineTimeline timeline = simulate(schedule);
        require(timeline.makespan >= 1, "a schedule that takes no time");
    });
}

}  // namespace drover::test
