#include "parallel/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "parallel/schedule/csv.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/transfers.h"
#include "parallel/schedule/weights.h"
#include "support/errors.h"

namespace drover {
namespace {

PipelineSchedule schedule_of(std::string_view text) {
    return parse_schedule_csv(text, "test");
}

const TimedAction& timed(const PipelineTimeline& timeline, std::string_view text) {
    const PipelineAction action = *parse_pipeline_action(text);
    for (const auto& actions : timeline.ranks)
        for (const TimedAction& one : actions)
            if (one.action == action) return one;
    throw std::runtime_error("not in the timeline");
}

TEST(Simulate, StagesHaveTheirOwnTimes) {
    PipelineTimes times;
    times.stages = {{.forward = 2, .backward_input = 3, .backward_weight = 4},
                    {.forward = 5, .backward_input = 6, .backward_weight = 7}};
    const PipelineTimeline timeline = simulate(one_forward_one_backward(2, 1), times);
    EXPECT_EQ(timed(timeline, "0F0").end, 2);
    EXPECT_EQ(timed(timeline, "1F0").end, 7);
    EXPECT_EQ(timed(timeline, "1B0").start, 7);
    EXPECT_EQ(timed(timeline, "0B0").start, 20);
    EXPECT_EQ(timeline.makespan, 27);
    EXPECT_EQ(timeline.bubble, (std::vector<double>{18, 9}));
    EXPECT_EQ(timeline.whole_bubble(), 27);
    EXPECT_EQ(timeline.bubble_fraction(), 0.5);
    // With the parts of backward apart, the gradient leaves before the weights' is made.
    EXPECT_EQ(simulate(zero_bubble(2, 1, 1), times).makespan, 20);
}

TEST(Simulate, TransfersTakeTimeWithAndWithoutActionsForThem) {
    PipelineTimes times;
    times.transfer = 10;
    const PipelineSchedule schedule = one_forward_one_backward(2, 1);
    EXPECT_EQ(simulate(schedule, times).makespan, 26);
    const PipelineTimeline timeline = simulate(with_transfers(schedule), times);
    EXPECT_EQ(timeline.makespan, 26);
    EXPECT_EQ(timed(timeline, "0SEND_F0").end, 1);
    EXPECT_EQ(timed(timeline, "1RECV_F0").end, 11);
    EXPECT_EQ(timed(timeline, "1F0").start, 11);
    // Between chunks of the same rank nothing is sent.
    EXPECT_EQ(simulate(interleaved(1, 2, 1), times).makespan, 6);
}

TEST(Simulate, MessagesOfOneKindFollowEachOther) {
    PipelineTimes times;
    times.transfer = 10;
    times.buffers = 3;
    const PipelineTimeline timeline = simulate(with_transfers(forward_only(2, 1, 3)), times);
    EXPECT_EQ(timed(timeline, "1F0").start, 11);
    EXPECT_EQ(timed(timeline, "1F1").start, 21);
    EXPECT_EQ(timed(timeline, "1F2").start, 31);
    EXPECT_EQ(timed(timeline, "0F2").end, 3);
}

TEST(Simulate, ASenderWaitsForABuffer) {
    const PipelineSchedule schedule = with_late_receives(with_transfers(forward_only(2, 1, 4)));
    PipelineTimes times;
    times.stages = {{.forward = 1}, {.forward = 10}};
    times.buffers = 1;
    PipelineTimeline timeline = simulate(schedule, times);
    EXPECT_EQ(timed(timeline, "0SEND_F1").start, 2);
    EXPECT_EQ(timed(timeline, "0SEND_F2").start, 11);
    EXPECT_EQ(timed(timeline, "0SEND_F3").start, 21);
    times.buffers = 2;
    timeline = simulate(schedule, times);
    EXPECT_EQ(timed(timeline, "0SEND_F2").start, 3);
    EXPECT_EQ(timed(timeline, "0SEND_F3").start, 11);
}

TEST(Simulate, TheReaderOrTheRankWaitsForAMessage) {
    const PipelineSchedule schedule = schedule_of(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
    PipelineTimes times;
    times.transfer = 10;
    EXPECT_EQ(timed(simulate(schedule, times), "1B0").start, 12);
    times.receives = ReceiveRule::rank_waits;
    EXPECT_EQ(timed(simulate(schedule, times), "1B0").start, 21);
}

TEST(Simulate, GathersAndReductionsGoBesideComputation) {
    PipelineTimes times;
    times.stages = {{.gather = 5, .reduce_gradients = 100}};
    const PipelineSchedule schedule = with_reductions(with_gathers(interleaved(1, 2, 1), {2, 2}));
    const PipelineTimeline timeline = simulate(schedule, times);
    EXPECT_EQ(timed(timeline, "0F0").start, 5);
    EXPECT_EQ(timed(timeline, "1F0").start, 10) << "the second gather follows the first";
    EXPECT_EQ(timed(timeline, "1REDUCE_GRAD").start, 13);
    EXPECT_EQ(timed(timeline, "0B0").start, 13);
    EXPECT_EQ(timeline.makespan, 213);
    const PipelineTimeline waits = simulate(schedule_of("0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"), times);
    EXPECT_EQ(timed(waits, "0WAIT_REDUCE_GRAD").end, 103);
}

TEST(Simulate, AWaitEndsWhenTheMessageIsReceived) {
    PipelineTimes times;
    times.transfer = 10;
    const PipelineTimeline timeline =
        simulate(schedule_of("0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1\n"), times);
    EXPECT_EQ(timed(timeline, "0WAIT_SEND_F0").end, 11);
    EXPECT_EQ(timed(timeline, "0F1").start, 11);
}

TEST(Simulate, ADeadlockNamesTheActionsThatWait) {
    test::expect_error([] { simulate(schedule_of("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")); },
                       {"rank 0 stops at 0B0, which waits for 1B0 of rank 1",
                        "rank 1 stops at 1F1, which waits for 0F1 of rank 0"});
    // Each waits for the other to receive what it sent before.
    const PipelineSchedule schedule = with_late_receives(with_transfers(zero_bubble(2, 3, 4)));
    PipelineTimes times;
    times.buffers = 1;
    test::expect_error([&] { simulate(schedule, times); },
                       {"rank 0 stops at 2SEND_B0, which waits for 3RECV_B1 of rank 1",
                        "rank 1 stops at 1SEND_F3, which waits for 2RECV_F2 of rank 0", "more buffers"});
    EXPECT_NO_THROW(simulate(with_transfers(zero_bubble(2, 3, 4)), times));
    // Two buffers are too few for more ranks.
    test::expect_error([] { simulate(with_late_receives(with_transfers(zero_bubble(4, 3, 8)))); },
                       {"rank 0 stops at 4SEND_B0, which waits for 7RECV_B2 of rank 3"});
}

TEST(Simulate, TransfersThatDoNotFitAreRefused) {
    const auto expect_refused = [](std::string_view text, std::string_view part) {
        for (const ReceiveRule rule : {ReceiveRule::reader_waits, ReceiveRule::rank_waits}) {
            PipelineTimes times;
            times.receives = rule;
            test::expect_error([&] { simulate(schedule_of(text), times); }, {part});
        }
    };
    expect_refused("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n",
                   "1RECV_F1 gets the message of 0SEND_F0");
    expect_refused("0F0,0SEND_F0,0F1,0SEND_F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F0,1F1\n",
                   "nobody receives 0SEND_F1");
    expect_refused("0F0,0SEND_F0\n1F0\n", "rank 1 stops at 1F0, which waits for 1RECV_F0 of rank 1");
    expect_refused("0F0\n1RECV_F0,1F0\n", "waits for 0SEND_F0 of rank 0, which has come to its end");
    expect_refused("0SEND_F0,0F0\n1RECV_F0,1F0\n", "rank 0 stops at 0SEND_F0, which waits for 0F0 of rank 0");
    expect_refused("0RECV_F0,0F0\n1F0\n", "0RECV_F0 has no stage at its other end");
    expect_refused("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_F0\n", "1SEND_F0 has no stage at its other end");
    expect_refused("0F0,0WAIT_SEND_F0\n1F0\n",
                   "rank 0 stops at 0WAIT_SEND_F0, which waits for 0SEND_F0 of rank 0");
    // A receive that nothing reads does not stop a computation.
    test::expect_error([] { simulate(schedule_of("0F0,0SEND_F0,0RECV_B0\n1RECV_F0,1F0\n")); },
                       {"nobody sends for 0RECV_B0"});
}

TEST(Simulate, WeightsThatAreNotThereAreRefused) {
    test::expect_error([] { simulate(schedule_of("0UNSHARD,0RESHARD,0F0\n")); }, {"0F0", "not gathered"});
    test::expect_error([] { simulate(schedule_of("0F0,0REDUCE_GRAD,0B0\n")); },
                       {"0REDUCE_GRAD comes before the last backward"});
    test::expect_error([] { simulate(schedule_of("0F0,0B0,0WAIT_REDUCE_GRAD\n")); },
                       {"0WAIT_REDUCE_GRAD, which waits for 0REDUCE_GRAD"});
}

TEST(HeldActivations, AreHeldUntilTheWeightsHaveTheirGradient) {
    const HeldActivations held = held_activations(zero_bubble(3, 1, 6));
    EXPECT_EQ(held.of_rank, (std::vector<int>{3, 3, 3}));
    const HeldActivations chunks = held_activations(interleaved(2, 2, 4));
    EXPECT_EQ(chunks.of_rank, (std::vector<int>{5, 3}));
    EXPECT_EQ(chunks.of_stage, (std::vector<int>{4, 3, 2, 1}));
}

}  // namespace
}  // namespace drover
