#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "core/json_text.h"
#include "core/sha256.h"
#include "parallel/schedule/csv.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/transfers.h"
#include "parallel/schedule/weights.h"
#include "support/golden.h"

/// tools/oracle/pipeline_schedules.py: what torch.distributed.pipelining makes.
namespace drover {
namespace {

std::string digest(const PipelineSchedule& schedule) {
    const Sha256Digest bytes = Sha256().add(to_csv(schedule)).digest();
    std::string text;
    for (int i = 0; i < 6; ++i) text += fmt::format("{:02x}", bytes[static_cast<std::size_t>(i)]);
    return text;
}

template <class Generate>
void expect_torchs_schedules(const char* name, std::size_t cases, Generate&& generate) {
    static const Json golden = read_json_file(test::golden_path("pipeline_schedules/digests.json"));
    EXPECT_EQ(golden.at(name).size(), cases);
    for (const Json& expected : golden.at(name)) {
        const PipelineSchedule schedule =
            generate(expected[0].get<int>(), expected[1].get<int>(), expected[2].get<int>());
        ASSERT_EQ(digest(schedule), expected[3]) << expected;
        ASSERT_EQ(digest(with_transfers(with_reductions(with_gathers(schedule)))), expected[4]) << expected;
    }
}

TEST(TorchSchedules, OneForwardOneBackward) {
    expect_torchs_schedules("one_forward_one_backward", 1024, [](int ranks, int, int micro_batches) {
        return one_forward_one_backward(ranks, micro_batches);
    });
}

TEST(TorchSchedules, Interleaved) {
    expect_torchs_schedules("interleaved", 844, interleaved);
}

// PyTorch's has the bubble and the memory of ours (AllSizes.ZeroBubble…), because it is the same. With one
// chunk it refuses some numbers of micro-batches that are not a multiple of the ranks; ours takes them all.
TEST(TorchSchedules, ZeroBubble) {
    expect_torchs_schedules("zero_bubble", 1203, zero_bubble);
}

TEST(TorchSchedules, ForwardOnly) {
    expect_torchs_schedules("forward_only", 1024, forward_only);
}

class TorchFiles : public ::testing::TestWithParam<const char*> {
  protected:
    PipelineSchedule read(const char* form) const {
        return read_schedule_csv(
            test::golden_path(fmt::format("pipeline_schedules/{}_{}.csv", GetParam(), form)));
    }
    PipelineSchedule ours() const {
        const std::string name = GetParam();
        if (name == "interleaved_4_2_8") return interleaved(4, 2, 8);
        if (name == "interleaved_2_3_4") return interleaved(2, 3, 4);
        if (name == "zero_bubble_4_1_8") return zero_bubble(4, 1, 8);
        return zero_bubble(3, 2, 6);
    }
};

TEST_P(TorchFiles, WithIdleCellsIsReadWithoutThem) {
    EXPECT_EQ(read("compute_only"), ours());
}

TEST_P(TorchFiles, WithEverythingIsReadAndRuns) {
    PipelineSchedule theirs = read("compute_comms");
    EXPECT_EQ(parse_schedule_csv(to_csv(theirs), "written"), theirs);
    EXPECT_EQ(simulate(theirs).makespan, simulate(ours()).makespan);
    for (auto& actions : theirs.ranks)
        std::erase_if(actions, [](const PipelineAction& action) {
            return action.kind == PipelineActionKind::wait_for_sent_activations ||
                   action.kind == PipelineActionKind::wait_for_sent_gradients ||
                   action.kind == PipelineActionKind::wait_for_reduction;
        });
    // The waits for reductions had a place in PyTorch's walk through the ranks, so some receives come later.
    PipelineSchedule mine = with_transfers(with_reductions(with_gathers(ours())));
    EXPECT_EQ(with_late_receives(theirs), with_late_receives(mine));
}

INSTANTIATE_TEST_SUITE_P(All, TorchFiles,
                         ::testing::Values("interleaved_4_2_8", "interleaved_2_3_4", "zero_bubble_4_1_8",
                                           "zero_bubble_3_2_6"));

}  // namespace
}  // namespace drover
