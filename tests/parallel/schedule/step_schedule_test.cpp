#include "parallel/schedule/step_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule/generators.h"
#include "parallel/schedule/simulate.h"

namespace drover::step_schedule_test {
namespace {

using Kind = PipelineScheduleKind;

constexpr Kind kinds[] = {Kind::one_forward_one_backward, Kind::zero_bubble, Kind::forward_only};

/// The strictest rank that the buffers allow: it stops at every receive.
PipelineTimeline run_strictly(const PipelineSchedule& schedule) {
    PipelineTimes times;
    times.buffers = transfer_buffers;
    times.receives = ReceiveRule::rank_waits;
    return simulate(schedule, times);
}

/// Every micro-batch once, weight gradients in ascending order, and an end.
void check_update(const PipelineSchedule& schedule) {
    check_computation(schedule);
    std::vector<int> next(static_cast<std::size_t>(schedule.shape.stages()));
    for (const auto& actions : schedule.ranks)
        for (const PipelineAction& action : actions)
            if (action.kind == PipelineActionKind::backward ||
                action.kind == PipelineActionKind::backward_weight) {
                EXPECT_EQ(action.micro_batch, next[static_cast<std::size_t>(action.stage)]++);
            }
    EXPECT_GT(run_strictly(schedule).makespan, 0);
}

std::size_t actions_of(const PipelineSchedule& schedule, PipelineActionKind kind) {
    std::size_t count = 0;
    for (const auto& actions : schedule.ranks)
        for (const PipelineAction& action : actions) count += action.kind == kind ? 1 : 0;
    return count;
}

TEST(StepSchedule, ComesToItsEndForAnyNumberOfMicroBatches) {
    for (const Kind kind : kinds)
        for (int ranks = 1; ranks <= 8; ++ranks)
            for (int chunks = 1; chunks <= 4; ++chunks)
                for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
                    SCOPED_TRACE(fmt::format("{}, {} ranks, {} chunks, {} micro-batches",
                                             name_of(kind, chunks), ranks, chunks, micro_batches));
                    const PipelineSchedule schedule = step_schedule(kind, {ranks, chunks, micro_batches});
                    EXPECT_EQ(schedule.shape, (PipelineShape{ranks, chunks, micro_batches}));
                    EXPECT_EQ(actions_of(schedule, PipelineActionKind::forward),
                              static_cast<std::size_t>(ranks * chunks * micro_batches));
                    ASSERT_NO_THROW(check_update(schedule));
                    if (kind == Kind::zero_bubble) {
                        ASSERT_NO_THROW(check_update(with_whole_backwards(schedule)));
                    }
                }
}

TEST(StepSchedule, IsTheGeneratorsOrderWhereTheyHaveOne) {
    const auto computation = [](PipelineSchedule schedule) {
        for (auto& actions : schedule.ranks)
            std::erase_if(actions, [](const PipelineAction& action) { return !is_computation(action.kind); });
        return schedule;
    };
    EXPECT_EQ(computation(step_schedule(Kind::one_forward_one_backward, {4, 1, 6})),
              one_forward_one_backward(4, 6));
    EXPECT_EQ(computation(step_schedule(Kind::one_forward_one_backward, {4, 2, 8})), interleaved(4, 2, 8));
    EXPECT_EQ(computation(step_schedule(Kind::zero_bubble, {4, 2, 8})), zero_bubble(4, 2, 8));
    EXPECT_EQ(computation(step_schedule(Kind::forward_only, {4, 2, 7})), forward_only(4, 2, 7));
}

TEST(StepSchedule, WholeBackwardsHaveNoPartsLeft) {
    const PipelineSchedule apart = step_schedule(Kind::zero_bubble, {4, 1, 6});
    const PipelineSchedule whole = with_whole_backwards(apart);
    EXPECT_EQ(actions_of(apart, PipelineActionKind::backward_weight), 24u);
    EXPECT_EQ(actions_of(whole, PipelineActionKind::backward_weight), 0u);
    EXPECT_EQ(actions_of(whole, PipelineActionKind::backward_input), 0u);
    EXPECT_EQ(actions_of(whole, PipelineActionKind::backward), 24u);
}

TEST(StepSchedule, Names) {
    EXPECT_EQ(name_of(Kind::one_forward_one_backward, 1), "1F1B");
    EXPECT_EQ(name_of(Kind::one_forward_one_backward, 2), "interleaved 1F1B");
    EXPECT_EQ(name_of(Kind::zero_bubble, 2), "zero bubble");
    EXPECT_EQ(name_of(Kind::forward_only, 1), "forward only");
}

}  // namespace
}  // namespace drover::step_schedule_test
