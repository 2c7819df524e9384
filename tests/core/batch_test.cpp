#include "core/batch.h"

#include <gtest/gtest.h>

#include <numeric>

namespace drover {
namespace {

using Ids = std::vector<std::int32_t>;

Ids count_to(std::int32_t count) {
    Ids ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

/// A label of −100 is never a target and is not counted; the first label of a row is counted, although
/// nothing predicts it.
TEST(Batch, LabelsInsideARowMayBeNone) {
    const Batch batch =
        Batch::full_rows(2, 4, {1, 2, 3, 4, 5, 6, 7, 8}, {1, no_label, 3, 4, no_label, 6, no_label, 8});
    EXPECT_EQ(batch.targets(), (Ids{no_label, 3, 4, no_label,  //
                                    6, no_label, 8, no_label}));
    EXPECT_EQ(batch.positions(), (Ids{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(batch.target_count(), 4);
    EXPECT_EQ(batch.label_count(), 5);
    EXPECT_EQ(batch.attended_tokens(), 8);
}

TEST(Batch, TargetsAndPositionsStayInsideASequence) {
    const std::vector<Ids> lengths = {{3, 2}, {4}};
    const Batch batch = Batch::packed(2, 6, count_to(12), count_to(12), lengths);
    EXPECT_EQ(batch.targets(), (Ids{1, 2, -100, 4, -100, -100, 7, 8, 9, -100, -100, -100}));
    EXPECT_EQ(batch.positions(), (Ids{0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 0}));
    EXPECT_EQ(batch.target_count(), 6);
    EXPECT_EQ(batch.label_count(), 9);
    EXPECT_EQ(batch.attended_tokens(), 9);
}

TEST(Batch, SomeRowsKeepTheirSequences) {
    const Ids ids = count_to(24);
    const std::vector<Ids> lengths = {{3, 5}, {}, {4, 2}};
    const Batch batch = Batch::packed(3, 8, ids, ids, lengths);
    const Batch last = batch.some_rows(2, 1);
    EXPECT_EQ(last.ids, Ids(ids.begin() + 16, ids.end()));
    EXPECT_EQ(last.sequence_begin, (Ids{0, 4}));
    EXPECT_EQ(last.sequence_length, (Ids{4, 2}));
    EXPECT_EQ(last.target_count(), 4);
    const Batch empty = batch.some_rows(1, 1);
    EXPECT_EQ(empty.sequence_length, Ids{0});  // no sequence, not one that fills the row
    EXPECT_EQ(batch.some_rows(0, 2).sequence_length, (Ids{3, 5}));
}

TEST(Batch, SequencesAreLeftOutOnlyWhereEveryRowIsOne) {
    EXPECT_TRUE(Batch::right_padded(2, 3, count_to(6), count_to(6), Ids{3, 3}).sequence_begin.empty());
    EXPECT_EQ(Batch::right_padded(2, 3, count_to(6), count_to(6), Ids{3, 2}).sequence_length, (Ids{3, 2}));
    const std::vector<Ids> halves = {{2, 2}}, nothing = {{}};
    EXPECT_EQ(Batch::packed(1, 4, count_to(4), count_to(4), halves).sequence_length, (Ids{2, 2}));
    const Batch padding = Batch::packed(1, 4, count_to(4), count_to(4), nothing);
    EXPECT_EQ(padding.attended_tokens(), 0);
    EXPECT_EQ(padding.target_count(), 0);
}

}  // namespace
}  // namespace drover
