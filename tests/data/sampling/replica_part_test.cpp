#include "data/sampling/replica_part.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

using Ids = std::vector<std::int32_t>;

/// The second row is padded.
Batch three_rows() {
    Batch batch = Batch::right_padded(3, 2, {1, 2, 3, 4, 5, 6}, {1, 2, 3, -100, 5, 6}, Ids{2, 1, 2});
    batch.position = {.epoch = 1, .step = 7};
    return batch;
}

TEST(ReplicaPart, PartsFollowEachOther) {
    const Batch first = take_part(three_rows(), {.replicas = 2, .replica = 0});
    EXPECT_EQ(first.rows, 2);
    EXPECT_EQ(first.ids, (Ids{1, 2, 3, 4}));
    EXPECT_EQ(first.labels, (Ids{1, 2, 3, -100}));
    EXPECT_EQ(first.sequence_begin, (Ids{0, 2}));
    EXPECT_EQ(first.sequence_length, (Ids{2, 1}));
    EXPECT_EQ(first.filler_rows, 0);
}

TEST(ReplicaPart, MissingRowsAreMasked) {
    const Batch last = take_part(three_rows(), {.replicas = 2, .replica = 1});
    EXPECT_EQ(last.rows, 2);
    EXPECT_EQ(last.ids, (Ids{5, 6, 1, 2}));
    EXPECT_EQ(last.labels, (Ids{5, 6, -100, -100}));
    EXPECT_EQ(last.sequence_begin, (Ids{0, 2}));
    EXPECT_EQ(last.sequence_length, (Ids{2, 0}));
    EXPECT_EQ(last.filler_rows, 1);
    const Batch none = take_part(three_rows(), {.replicas = 4, .replica = 3});
    EXPECT_EQ(none.rows, 1);
    EXPECT_EQ(none.sequence_length, Ids{0});
    EXPECT_EQ(none.filler_rows, 1);
    EXPECT_EQ(none.target_count(), 0);
}

/// Without a list of sequences every row is one, so next to a filler row the full rows must be listed as
/// well.
TEST(ReplicaPart, FullRowsKeepTheirSequencesBesideFillerRows) {
    const Batch whole = Batch::full_rows(3, 2, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6});
    const Batch last = take_part(whole, {.replicas = 2, .replica = 1});
    EXPECT_EQ(last.sequence_begin, (Ids{0, 2}));
    EXPECT_EQ(last.sequence_length, (Ids{2, 0}));
    EXPECT_EQ(last.attended_tokens(), 2);
}

TEST(ReplicaPart, APartWithoutPaddingHasFullRows) {
    const Batch last = take_part(three_rows(), {.replicas = 3, .replica = 2});
    EXPECT_EQ(last.ids, (Ids{5, 6}));
    EXPECT_TRUE(last.sequence_begin.empty());
}

TEST(ReplicaPart, PartsKnowTheWhole) {
    for (const std::int64_t replica : {0, 1}) {
        const Batch part = take_part(three_rows(), {.replicas = 2, .replica = replica});
        EXPECT_EQ(part.position, (BatchPosition{1, 7}));
        ASSERT_TRUE(part.part_of);
        EXPECT_EQ(part.whole().rows, 3);
        EXPECT_EQ(part.whole().attended_tokens, 5);
    }
    const Batch whole = take_part(three_rows(), {});
    EXPECT_FALSE(whole.part_of);
    EXPECT_EQ(whole.rows, 3);
    EXPECT_EQ(whole.whole().attended_tokens, 5);
}

TEST(ReplicaPart, RowsAreDealtInOrderUntilThereAreNone) {
    const auto own_rows = [](std::int64_t replicas, std::int64_t replica, std::int64_t rows) {
        const Ids ids(static_cast<std::size_t>(rows), 1);
        const Batch part =
            take_part(Batch::full_rows(rows, 1, ids, ids), {.replicas = replicas, .replica = replica});
        return part.rows - part.filler_rows;
    };
    EXPECT_EQ(own_rows(2, 0, 8), 4);
    EXPECT_EQ(own_rows(2, 1, 7), 3);
    EXPECT_EQ(own_rows(4, 1, 5), 2);
    EXPECT_EQ(own_rows(4, 2, 5), 1);
    EXPECT_EQ(own_rows(4, 3, 5), 0);
    EXPECT_EQ((ReplicaPart{.replicas = 4}.rows_of(5)), 2);
    EXPECT_EQ(ReplicaPart{}.rows_of(5), 5);
}

}  // namespace
}  // namespace drover
