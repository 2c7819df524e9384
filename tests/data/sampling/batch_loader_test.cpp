#include "data/sampling/batch_loader.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/torch_rng.h"
#include "data/fakes.h"
#include "data/packing/token_file_writer.h"
#include "support/golden.h"

namespace drover {
namespace {

class Loader : public ::testing::Test {
  protected:
    /// Row i holds its number, `length(i)` times.
    TokenFile file_of(std::int64_t rows, const PackingOptions& options,
                      const std::function<std::size_t(std::int64_t)>& length) {
        TokenFileWriter writer(folder_ / "rows.tokens", test::ByteTokenizer(), options);
        for (std::int64_t i = 0; i < rows; ++i)
            writer.add(std::vector<TokenId>(length(i), static_cast<TokenId>(i)));
        writer.finish();
        return TokenFile(folder_ / "rows.tokens");
    }
    TokenFile blocks_of_three(std::int64_t rows) {
        return file_of(rows, {.block_size = 3}, [](std::int64_t) { return 3; });
    }

    test::TemporaryFolder folder_;
};

std::vector<std::int32_t> first_ids(const Batch& batch) {
    std::vector<std::int32_t> ids;
    for (std::int64_t row = 0; row < batch.rows; ++row)
        ids.push_back(batch.ids[static_cast<std::size_t>(row * batch.row_length)]);
    return ids;
}

TEST_F(Loader, VisitsEveryEpochInItsOrder) {
    const TokenFile file = blocks_of_three(10);
    BatchLoader loader(file.rows(), {.sampler = {.batch_size = 4}, .epochs = 2});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        const std::vector<std::int64_t> order = TorchRng(42 + static_cast<std::uint64_t>(epoch)).randperm(10);
        for (std::int64_t step = 0; step < 3; ++step) {
            const std::optional<Batch> loaded = loader.next();
            ASSERT_TRUE(loaded);
            EXPECT_EQ(loaded->position.epoch, epoch);
            EXPECT_EQ(loaded->position.step, step);
            EXPECT_EQ(first_ids(*loaded),
                      std::vector<std::int32_t>(order.begin() + 4 * step,
                                                order.begin() + std::min<std::int64_t>(4 * step + 4, 10)));
        }
    }
    EXPECT_FALSE(loader.next());
}

TEST_F(Loader, ResumesAnywhereWithTheSameBatches) {
    const TokenFile file = blocks_of_three(23);
    const LoaderOptions whole{.sampler = {.batch_size = 2, .ranks = 3, .rank = 1}, .epochs = 3};
    std::vector<Batch> all;
    for (BatchLoader loader(file.rows(), whole);;) {
        std::optional<Batch> loaded = loader.next();
        if (!loaded) break;
        all.push_back(std::move(*loaded));
    }
    ASSERT_EQ(all.size(), 12u);
    for (std::size_t i = 0; i < all.size(); ++i) {
        LoaderOptions later = whole;
        later.start = all[i].position;
        const std::optional<Batch> loaded = BatchLoader(file.rows(), later).next();
        ASSERT_TRUE(loaded);
        EXPECT_EQ(loaded->ids, all[i].ids);
        EXPECT_EQ(loaded->filler_rows, all[i].filler_rows);
    }
}

TEST_F(Loader, AStartPastTheEpochIsTheNextOne) {
    const TokenFile file = blocks_of_three(8);
    BatchLoader loader(file.rows(), {.sampler = {.batch_size = 4}, .start = {0, 2}});
    EXPECT_EQ(loader.next()->position.epoch, 1);
}

TEST_F(Loader, RowsOfDifferentLengthsComeByLength) {
    const TokenFile file = file_of(40, {.packing = Packing::none, .block_size = 0},
                                   [](std::int64_t row) { return static_cast<std::size_t>(row % 9 + 1); });
    BatchLoader loader(file.rows(), {.sampler = {.batch_size = 2, .order = SampleOrder::by_length},
                                     .collator = {.pad_id = 0},
                                     .max_samples = 32,
                                     .epochs = 1});
    EXPECT_EQ(loader.next()->row_length, 9) << "the longest row comes first";
    std::int64_t rows = 2;
    while (const auto loaded = loader.next()) {
        rows += loaded->rows;
        for (const std::int32_t id : loaded->ids) EXPECT_LT(id, 32);
    }
    EXPECT_EQ(rows, 32);
}

TEST_F(Loader, ReplicasThatShareBatchesGetTheirParts) {
    const TokenFile file = blocks_of_three(6);
    const auto loader_of = [&](const ReplicaPart& part) {
        return BatchLoader(file.rows(), {.sampler = {.batch_size = 4}, .part = part, .epochs = 1});
    };
    BatchLoader whole = loader_of({}), first = loader_of({2, 0}), second = loader_of({2, 1});
    for (int step = 0; step < 2; ++step) {
        const Batch all = *whole.next(), a = *first.next(), b = *second.next();
        std::vector<std::int32_t> ids = a.ids;
        ids.insert(ids.end(), b.ids.begin(), b.ids.end());
        EXPECT_EQ(ids, all.ids) << step;
        EXPECT_EQ(a.whole().rows, all.rows) << step;
        EXPECT_EQ(b.position, all.position) << step;
    }
    EXPECT_FALSE(second.next());
}

TEST_F(Loader, TooFewRowsAreRefused) {
    const TokenFile file = blocks_of_three(3);
    EXPECT_THROW(BatchLoader(file.rows(), {.sampler = {.batch_size = 4, .drop_last = true}}), Error);
}

}  // namespace
}  // namespace drover
