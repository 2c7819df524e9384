#include "data/sampling/stream_batches.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace drover {
namespace {

using Batches = std::vector<std::vector<TokenId>>;

/// The batches of a rank when rows are [0], [1], …
Batches dealt(TokenId rows, StreamDealing dealing) {
    TokenId next = 0;
    StreamBatches stream(
        [&](std::vector<TokenId>& row) {
            row = {next};
            return next++ < rows;
        },
        dealing);
    Batches batches;
    std::vector<std::vector<TokenId>> batch;
    while (stream.next(batch)) {
        batches.emplace_back();
        for (const auto& row : batch) batches.back().push_back(row.at(0));
    }
    return batches;
}

TEST(StreamBatches, EveryRankGetsItsPartOfARound) {
    EXPECT_EQ(dealt(8, {.batch_size = 2, .ranks = 2, .rank = 0}), (Batches{{0, 1}, {4, 5}}));
    EXPECT_EQ(dealt(8, {.batch_size = 2, .ranks = 2, .rank = 1}), (Batches{{2, 3}, {6, 7}}));
    EXPECT_EQ(dealt(8, {.batch_size = 4, .ranks = 2, .rank = 1, .split_batches = true}),
              (Batches{{2, 3}, {6, 7}}));
}

TEST(StreamBatches, TheLastRoundIsFilledFromTheFirst) {
    EXPECT_EQ(dealt(5, {.batch_size = 2, .ranks = 2, .rank = 0}), (Batches{{0, 1}, {4, 0}}));
    EXPECT_EQ(dealt(5, {.batch_size = 2, .ranks = 2, .rank = 1}), (Batches{{2, 3}, {1, 2}}));
    EXPECT_EQ(dealt(2, {.batch_size = 2, .ranks = 3, .rank = 2}), (Batches{{0, 1}}));
    EXPECT_EQ(dealt(5, {.batch_size = 2, .ranks = 2, .rank = 1, .drop_last = true}), (Batches{{2, 3}}));
    EXPECT_EQ(dealt(0, {.batch_size = 2}), Batches{});
}

TEST(StreamBatches, TheLastBatchOfASingleRankIsShort) {
    EXPECT_EQ(dealt(5, {.batch_size = 2}), (Batches{{0, 1}, {2, 3}, {4}}));
    EXPECT_EQ(dealt(5, {.batch_size = 2, .drop_last = true}), (Batches{{0, 1}, {2, 3}}));
}

TEST(StreamBatches, RowsThatFillUpAreNotFresh) {
    const auto fresh = [](std::int64_t rank) {
        TokenId next = 0;
        StreamBatches stream([&](std::vector<TokenId>& row) { return row = {next}, next++ < 5; },
                             {.batch_size = 2, .ranks = 2, .rank = rank});
        std::vector<std::int64_t> counts;
        for (std::vector<std::vector<TokenId>> batch; stream.next(batch);) counts.push_back(stream.fresh());
        return counts;
    };
    EXPECT_EQ(fresh(0), (std::vector<std::int64_t>{2, 1}));
    EXPECT_EQ(fresh(1), (std::vector<std::int64_t>{2, 0}));
}

TEST(StreamBatches, RefusesPartsThatAreNotEqual) {
    test::expect_error<UsageError>([&] { dealt(1, {.batch_size = 3, .ranks = 2, .split_batches = true}); },
                                   {"Batches of 3 rows", "2 ranks"});
}

}  // namespace
}  // namespace drover
