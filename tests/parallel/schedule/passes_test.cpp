#include <gtest/gtest.h>

#include "parallel/schedule/csv.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/transfers.h"
#include "parallel/schedule/weights.h"
#include "support/errors.h"

namespace drover {
namespace {

TEST(Transfers, TheSenderPlacesTheReceive) {
    EXPECT_EQ(to_csv(with_transfers(one_forward_one_backward(2, 2))),
              "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\r\n"
              "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\r\n");
}

TEST(Transfers, LateReceivesComeJustBeforeTheirReader) {
    EXPECT_EQ(to_csv(with_late_receives(with_transfers(one_forward_one_backward(2, 2)))),
              "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\r\n"
              "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\r\n");
}

TEST(Transfers, ARankAloneSendsNothing) {
    const PipelineSchedule schedule = interleaved(1, 3, 2);
    EXPECT_EQ(with_transfers(schedule), schedule);
    EXPECT_EQ(with_late_receives(schedule), schedule);
}

TEST(Transfers, ComputationsThatWaitForEachOtherAreRefused) {
    const PipelineSchedule schedule = parse_schedule_csv("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "test");
    test::expect_error([&] { with_transfers(schedule); },
                       {"wait for each other: rank 0 at 0B0, rank 1 at 1F1"});
}

TEST(Transfers, UnreadMessagesAreCounted) {
    const PipelineSchedule schedule = with_transfers(forward_only(2, 2, 4));
    const UnreadMessages early = most_unread_messages(schedule);
    EXPECT_EQ(early.activations, (std::vector<int>{2, 1})) << to_csv(schedule);
    EXPECT_EQ(early.gradients, (std::vector<int>{0, 0}));
    EXPECT_EQ(most_unread_messages(with_late_receives(schedule)).activations, (std::vector<int>{1, 1}));
}

TEST(Weights, ChunksAreGatheredAheadAndReleasedWhenOthersComeFirst) {
    const PipelineSchedule schedule = forward_only(1, 3, 2);
    EXPECT_EQ(to_csv(with_gathers(schedule, {1, 1})),
              "0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1RESHARD,2UNSHARD,2F0,2RESHARD,0UNSHARD,0F1,0RESHARD,"
              "1UNSHARD,1F1,1RESHARD,2UNSHARD,2F1,2RESHARD\r\n");
    EXPECT_EQ(to_csv(with_gathers(schedule, {2, 2})),
              "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,1RESHARD,0UNSHARD,2F0,2RESHARD,1UNSHARD,0F1,"
              "0RESHARD,2UNSHARD,1F1,1RESHARD,2F1,2RESHARD\r\n");
    // Room for all of them, but none is gathered before its turn.
    EXPECT_EQ(to_csv(with_gathers(schedule, {3, 1})),
              "0UNSHARD,0F0,1UNSHARD,1F0,2UNSHARD,2F0,0F1,0RESHARD,1F1,1RESHARD,2F1,2RESHARD\r\n");
}

TEST(Weights, TransfersAreNoUseOfWeightsAndGoBeforeReductions) {
    EXPECT_EQ(to_csv(with_reductions(with_gathers(with_transfers(one_forward_one_backward(2, 1))))),
              "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\r\n"
              "1RECV_F0,1UNSHARD,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\r\n");
}

TEST(Weights, GradientsAreReducedAfterTheLastBackward) {
    EXPECT_EQ(to_csv(with_reductions(zero_bubble(1, 2, 2))),
              "0F0,1F0,1I0,1W0,0F1,0I0,0W0,1F1,1I1,1W1,1REDUCE_GRAD,0I1,0W1,0REDUCE_GRAD\r\n");
    const PipelineSchedule evaluation = forward_only(2, 1, 2);
    EXPECT_EQ(with_reductions(evaluation), evaluation);
}

}  // namespace
}  // namespace drover
