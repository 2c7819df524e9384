#include "data/sampling/batch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/torch_rng.h"
#include "data/fakes.h"
#include "data/packing/token_file_writer.h"
#include "data/sampling/sampler.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

class Loader : public ::testing::Test {
  protected:
    /// Row i holds its number `length(i)` times.
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
        BatchLoader loader(file.rows(), later);
        for (std::size_t j = i; j < all.size(); ++j) {
            const std::optional<Batch> loaded = loader.next();
            ASSERT_TRUE(loaded) << j << " from " << i;
            EXPECT_EQ(loaded->position, all[j].position) << j << " from " << i;
            EXPECT_EQ(loaded->ids, all[j].ids) << j << " from " << i;
            EXPECT_EQ(loaded->labels, all[j].labels) << j << " from " << i;
            EXPECT_EQ(loaded->filler_rows, all[j].filler_rows) << j << " from " << i;
        }
        EXPECT_FALSE(loader.next()) << i;
    }
}

TEST_F(Loader, AStartPastTheEpochIsTheNextOne) {
    const TokenFile file = blocks_of_three(8);
    BatchLoader loader(file.rows(), {.sampler = {.batch_size = 4}, .start = {0, 2}});
    EXPECT_EQ(loader.next()->position.epoch, 1);
}

TEST_F(Loader, RowsOfDifferentLengthsComeByLength) {
    const auto length = [](std::int64_t row) { return static_cast<std::size_t>(row % 9 + 1); };
    const TokenFile file = file_of(40, {.packing = Packing::none, .block_size = 0}, length);
    constexpr std::int64_t samples = 32;
    BatchLoader loader(file.rows(), {.sampler = {.batch_size = 2, .order = SampleOrder::by_length},
                                     .collator = {.pad_id = 250},
                                     .max_samples = samples,
                                     .epochs = 1});
    std::vector<std::int64_t> lengths;
    for (std::int64_t row = 0; row < samples; ++row)
        lengths.push_back(static_cast<std::int64_t>(length(row)));
    BatchSampler order({.samples = samples,
                        .batch_size = 2,
                        .order = SampleOrder::by_length,
                        .lengths = lengths});  // sampler_test.cpp compares it with transformers
    ASSERT_EQ(lengths[static_cast<std::size_t>(order.batch(0, 0)[0])], 9) << "the longest row comes first";
    for (std::int64_t step = 0; step < samples / 2; ++step) {
        const std::optional<Batch> loaded = loader.next();
        ASSERT_TRUE(loaded) << step;
        const std::vector<std::int64_t> rows = order.batch(0, step);
        const std::size_t longest = std::max(length(rows[0]), length(rows[1]));
        std::vector<std::int32_t> ids;
        for (const std::int64_t row : rows) {
            ids.insert(ids.end(), length(row), static_cast<std::int32_t>(row));
            ids.resize(ids.size() + longest - length(row), 250);
        }
        EXPECT_EQ(loaded->row_length, static_cast<std::int64_t>(longest)) << step;
        EXPECT_EQ(loaded->ids, ids) << step;
    }
    EXPECT_FALSE(loader.next());
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
    test::expect_error([&] { BatchLoader(file.rows(), {.sampler = {.batch_size = 4, .drop_last = true}}); },
                       {"3 rows, too few"});
}

}  // namespace
}  // namespace drover
