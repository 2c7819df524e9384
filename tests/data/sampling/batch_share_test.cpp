#include "data/sampling/batch_share.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

LabelledBatch three_rows() {
    return {.rows = 3,
            .row_length = 2,
            .ids = {1, 2, 3, 4, 5, 6},
            .labels = {1, 2, 3, -100, 5, 6},
            .lengths = {2, 1, 2}};
}

TEST(BatchShare, PartsFollowEachOther) {
    const LabelledBatch first = share_of(three_rows(), {.parts = 2, .part = 0});
    EXPECT_EQ(first.rows, 2);
    EXPECT_EQ(first.ids, (std::vector<std::int32_t>{1, 2, 3, 4}));
    EXPECT_EQ(first.labels, (std::vector<std::int32_t>{1, 2, 3, -100}));
    EXPECT_EQ(first.lengths, (std::vector<std::int32_t>{2, 1}));
}

TEST(BatchShare, MissingRowsAreMasked) {
    const LabelledBatch last = share_of(three_rows(), {.parts = 2, .part = 1});
    EXPECT_EQ(last.rows, 2);
    EXPECT_EQ(last.labels, (std::vector<std::int32_t>{5, 6, -100, -100}));
    EXPECT_EQ(last.lengths, (std::vector<std::int32_t>{2, 0}));
    const LabelledBatch none = share_of(three_rows(), {.parts = 4, .part = 3});
    EXPECT_EQ(none.rows, 1);
    EXPECT_EQ(none.lengths, std::vector<std::int32_t>{0});
}

TEST(BatchShare, CountsOfParts) {
    const auto fresh = [](std::int64_t parts, std::int64_t part, std::int64_t rows) {
        return BatchShare{.parts = parts, .part = part}.fresh_of(rows);
    };
    EXPECT_EQ(fresh(2, 0, 8), 4);
    EXPECT_EQ(fresh(2, 1, 7), 3);
    EXPECT_EQ(fresh(4, 1, 5), 2);
    EXPECT_EQ(fresh(4, 2, 5), 1);
    EXPECT_EQ(fresh(4, 3, 5), 0);
    EXPECT_EQ((BatchShare{.parts = 4}.rows_of(5)), 2);
    EXPECT_EQ(BatchShare{}.rows_of(5), 5);
}

}  // namespace
}  // namespace drover
