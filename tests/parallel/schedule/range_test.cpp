#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "parallel/schedule/generators.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/transfers.h"
#include "parallel/schedule/weights.h"

/// All sizes up to 16 ranks, 64 micro-batches and 4 chunks per rank.
namespace drover {
namespace {

using Kind = PipelineActionKind;
using Generator = std::function<PipelineSchedule(int ranks, int chunks, int micro_batches)>;

PipelineSchedule generate_1f1b(int ranks, int /*chunks*/, int micro_batches) {
    return one_forward_one_backward(ranks, micro_batches);
}

void for_all_sizes(int most_chunks, bool whole_turns, const Generator& generate,
                   const std::function<void(const PipelineSchedule&)>& check) {
    for (int ranks = 1; ranks <= 16; ++ranks)
        for (int chunks = 1; chunks <= most_chunks; ++chunks)
            for (int micro_batches = 1; micro_batches <= 64; ++micro_batches) {
                if (whole_turns && micro_batches % ranks != 0) continue;
                check(generate(ranks, chunks, micro_batches));
                if (::testing::Test::HasFailure()) {
                    ADD_FAILURE() << ranks << " ranks, " << chunks << " chunks, " << micro_batches
                                  << " micro-batches";
                    return;
                }
            }
}

/// The stage takes micro-batches 0, 1, 2, … for the gradients of its weights.
void expect_ascending_sums(const PipelineSchedule& schedule) {
    std::vector<int> next(static_cast<std::size_t>(schedule.shape.stages()));
    for (const auto& actions : schedule.ranks)
        for (const PipelineAction& action : actions)
            if (action.kind == Kind::backward || action.kind == Kind::backward_weight) {
                EXPECT_EQ(action.micro_batch, next[static_cast<std::size_t>(action.stage)]++);
            }
}

/// Complete; comes to its end even if ranks stop at receives and have a single buffer; with transfers that
/// take no time and two buffers as fast as without transfers. Returns the bubble, the same for all ranks.
double check_running(const PipelineSchedule& schedule) {
    check_computation(schedule);
    expect_ascending_sums(schedule);
    const PipelineTimeline plain = simulate(schedule);
    const PipelineSchedule transfers = with_transfers(schedule);
    EXPECT_EQ(simulate(transfers).makespan, plain.makespan);
    PipelineTimes strict;
    strict.buffers = 1;
    strict.receives = ReceiveRule::rank_waits;
    EXPECT_GE(simulate(transfers, strict).makespan, plain.makespan);
    for (const double bubble : plain.bubble) EXPECT_EQ(bubble, plain.bubble[0]);
    return plain.bubble[0];
}

int most_held(const PipelineSchedule& schedule) {
    const std::vector<int> held = held_activations(schedule).of_rank;
    return *std::max_element(held.begin(), held.end());
}

// Times of a chunk: forward f, both gradients b, the weights' part w.
constexpr double f = 1, b = 2, w = 1;

TEST(AllSizes, OneForwardOneBackward) {
    for_all_sizes(1, false, generate_1f1b, [](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        EXPECT_EQ(check_running(schedule), (ranks - 1) * (f + b));
        const HeldActivations held = held_activations(schedule);
        for (int rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(held.of_rank[static_cast<std::size_t>(rank)], std::min(ranks - rank, micro_batches));
        EXPECT_EQ(held.of_stage, held.of_rank);
    });
}

TEST(AllSizes, Interleaved) {
    for_all_sizes(4, true, interleaved, [](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        // (P − 1)(F + B)/v and P + (P − 1)/v of whole stages, which have v chunks.
        EXPECT_EQ(check_running(schedule), (ranks - 1) * (f + b));
        EXPECT_EQ(most_held(schedule), std::min(ranks * chunks + ranks - 1, micro_batches * chunks));
    });
}

TEST(AllSizes, ZeroBubbleOfOneChunk) {
    for_all_sizes(1, false, zero_bubble, [](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        const double bubble = check_running(schedule);
        if (micro_batches >= ranks) {
            EXPECT_EQ(bubble, (ranks - 1) * (f + b - 2 * w));
        }
        const PipelineSchedule reference = one_forward_one_backward(ranks, micro_batches);
        EXPECT_LE(bubble, simulate(reference).bubble[0]);
        EXPECT_EQ(most_held(schedule), most_held(reference));
    });
}

TEST(AllSizes, ZeroBubbleOfSeveralChunks) {
    for_all_sizes(4, true, zero_bubble, [](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        EXPECT_EQ(check_running(schedule), (ranks - 1) * (f + b - 2 * w));
        EXPECT_EQ(most_held(schedule), ranks * chunks);
    });
}

TEST(AllSizes, ForwardOnly) {
    for_all_sizes(4, false, forward_only, [](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        const double bubble = check_running(schedule);
        if (chunks == 1 || micro_batches % ranks == 0) {
            EXPECT_EQ(bubble, (ranks - 1) * f);
        }
        EXPECT_EQ(most_held(schedule), 1);
    });
}

// Also if the parts of a backward take other times than a forward, weight gradients apart cost nothing.
TEST(AllSizes, ZeroBubbleIsNeverSlowerThan1F1B) {
    const StageTimes cases[] = {{2, 2, 1}, {2, 3, 2}, {1, 2, 1}, {4, 5, 3}, {1, 1, 2}, {3, 2, 2}};
    for_all_sizes(1, false, zero_bubble, [&](const PipelineSchedule& schedule) {
        const auto [ranks, chunks, micro_batches] = schedule.shape;
        if (micro_batches % 5 != 0) return;
        for (const StageTimes& stage : cases) {
            PipelineTimes times;
            times.stages = {stage};
            EXPECT_LE(simulate(schedule, times).makespan,
                      simulate(one_forward_one_backward(ranks, micro_batches), times).makespan)
                << stage.forward << " " << stage.backward_input << " " << stage.backward_weight;
        }
    });
}

// Late receives need one buffer for what has arrived; no rank has to make room for more.
TEST(AllSizes, ReceivesCanBeLateExceptInZeroBubbleOfSeveralChunks) {
    const auto check = [](const PipelineSchedule& schedule) {
        const PipelineSchedule late = with_late_receives(with_transfers(schedule));
        PipelineTimes strict;
        strict.receives = ReceiveRule::rank_waits;
        EXPECT_EQ(simulate(late, strict).makespan, simulate(schedule).makespan);
        for (const int unread : most_unread_messages(late).activations) EXPECT_LE(unread, 1);
    };
    for_all_sizes(1, false, generate_1f1b, check);
    for_all_sizes(4, true, interleaved, check);
    for_all_sizes(1, false, zero_bubble, check);
    for_all_sizes(4, false, forward_only, check);
}

TEST(AllSizes, WeightsAreThereWhenAChunkComputes) {
    const auto check = [](const PipelineSchedule& schedule) {
        const GatherPolicy policy{2, 1 + schedule.shape.micro_batches % 2};
        const PipelineSchedule whole = with_reductions(with_gathers(with_transfers(schedule), policy));
        EXPECT_EQ(simulate(whole).makespan, simulate(schedule).makespan);
        for (const auto& actions : whole.ranks) {
            int gathered = 0, most = 0, reductions = 0;
            for (const PipelineAction& action : actions) {
                if (action.kind == Kind::gather) most = std::max(most, ++gathered);
                if (action.kind == Kind::release) --gathered;
                if (action.kind == Kind::reduce_gradients) ++reductions;
            }
            EXPECT_EQ(gathered, 0);
            EXPECT_LE(most, policy.most_gathered);
            EXPECT_EQ(reductions, schedule.shape.chunks);
        }
    };
    for_all_sizes(4, true, interleaved, check);
    for_all_sizes(4, true, zero_bubble, check);
}

// In PyTorch's order of passes receives come later, so a sender can wait for a buffer; but it gets one.
TEST(AllSizes, TransfersCanBeAddedLast) {
    const auto check = [](const PipelineSchedule& schedule) {
        const PipelineSchedule whole = with_transfers(with_reductions(with_gathers(schedule)));
        PipelineTimes strict;
        strict.buffers = 1;
        strict.receives = ReceiveRule::rank_waits;
        EXPECT_GE(simulate(whole, strict).makespan, simulate(schedule).makespan);
    };
    for_all_sizes(4, true, interleaved, check);
    for_all_sizes(4, true, zero_bubble, check);

    const PipelineSchedule large = zero_bubble(16, 4, 64);
    const GatherPolicy policy{2, 1};
    const double first = simulate(with_gathers(with_transfers(large), policy)).makespan;
    const double last = simulate(with_transfers(with_gathers(large, policy))).makespan;
    EXPECT_EQ(first, simulate(large).makespan);
    EXPECT_GT(last / first, 1.1);
    EXPECT_LT(last / first, 1.13);
}

}  // namespace
}  // namespace drover
