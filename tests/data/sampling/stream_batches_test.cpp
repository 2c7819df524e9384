#include "data/sampling/stream_batches.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace drover {
namespace {

using DealtBatches = std::vector<std::vector<TokenId>>;

/// The batches of a rank when rows are [0], [1], …
DealtBatches dealt(TokenId rows, StreamDealing dealing) {
    TokenId next = 0;
    StreamBatches stream(
        [&](TokenRow& row) {
            row = {.ids = {next}};
            return next++ < rows;
        },
        dealing);
    DealtBatches batches;
    std::vector<TokenRow> batch;
    while (stream.next(batch)) {
        batches.emplace_back();
        for (const auto& row : batch) batches.back().push_back(row.ids.at(0));
    }
    return batches;
}

TEST(StreamBatches, EveryRankGetsItsPartOfARound) {
    EXPECT_EQ(dealt(8, {.batch_size = 2, .ranks = 2, .rank = 0}), (DealtBatches{{0, 1}, {4, 5}}));
    EXPECT_EQ(dealt(8, {.batch_size = 2, .ranks = 2, .rank = 1}), (DealtBatches{{2, 3}, {6, 7}}));
}

TEST(StreamBatches, TheLastRoundIsFilledFromTheFirst) {
    EXPECT_EQ(dealt(5, {.batch_size = 2, .ranks = 2, .rank = 0}), (DealtBatches{{0, 1}, {4, 0}}));
    EXPECT_EQ(dealt(5, {.batch_size = 2, .ranks = 2, .rank = 1}), (DealtBatches{{2, 3}, {1, 2}}));
    EXPECT_EQ(dealt(2, {.batch_size = 2, .ranks = 3, .rank = 2}), (DealtBatches{{0, 1}}));
    EXPECT_EQ(dealt(0, {.batch_size = 2}), DealtBatches{});
}

TEST(StreamBatches, TheLastBatchOfASingleRankIsShort) {
    EXPECT_EQ(dealt(5, {.batch_size = 2}), (DealtBatches{{0, 1}, {2, 3}, {4}}));
}

TEST(StreamBatches, CountsTheRowsThatFillUp) {
    struct Counts {
        std::int64_t filler, rows_of_all;
        bool operator==(const Counts&) const = default;
    };
    const auto counts_of = [](std::int64_t rank) {
        TokenId next = 0;
        StreamBatches stream([&](TokenRow& row) { return row.ids = {next}, next++ < 5; },
                             {.batch_size = 2, .ranks = 2, .rank = rank});
        std::vector<Counts> counts;
        for (std::vector<TokenRow> batch; stream.next(batch);)
            counts.push_back({stream.filler(), stream.rows_of_all()});
        return counts;
    };
    EXPECT_EQ(counts_of(0), (std::vector<Counts>{{0, 4}, {1, 1}}));
    EXPECT_EQ(counts_of(1), (std::vector<Counts>{{0, 4}, {2, 1}}));
}

TEST(StreamBatches, RefusesBatchesWithoutRows) {
    test::expect_error<UsageError>([&] { dealt(1, {.batch_size = 0}); }, {"batch size is 0"});
}

}  // namespace
}  // namespace drover
