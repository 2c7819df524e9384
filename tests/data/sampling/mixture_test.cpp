#include "data/sampling/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/torch_rng.h"
#include "data/sampling/sampler.h"

namespace drover {
namespace {

using Samples = std::vector<std::int64_t>;

const std::vector<std::vector<double>> mixtures{
    {1},
    {3, 1},
    {1, 3},
    {1, 1},
    {0.7, 0.2, 0.1},
    {1, 1, 1},
    {1, 0.01, 5},
    {5, 1, 1, 1, 92},
    {1, 1e9},
    {1, 1, 1, 1, 1},
    {9, 90, 900, 9000, 1, 2, 3, 4, 5},
};

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

/// From `first` on, no dataset is ahead of its share or behind it, and `counts` agrees with the draws.
void expect_shares(const std::vector<double>& weights, std::int64_t first, std::int64_t examples) {
    const MixtureDealing dealing(weights);
    const double bound = std::ceil(std::log2(static_cast<double>(weights.size()))) / 2;
    Samples counts = dealing.counts(first);
    for (std::int64_t example = first; example < first + examples; ++example) {
        const auto [dataset, number] = dealing.draw(example);
        ASSERT_LT(dataset, weights.size());
        ASSERT_EQ(number, counts[dataset]) << "example " << example;
        ++counts[dataset];
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const double share = weights[i] / sum(weights) * static_cast<double>(example + 1);
            ASSERT_LE(std::abs(static_cast<double>(counts[i]) - share), bound + 1e-9 + 1e-15 * share)
                << "dataset " << i << " after " << example + 1;
        }
    }
    EXPECT_EQ(dealing.counts(first + examples), counts);
}

TEST(Mixture, EveryPrefixHasItsShares) {
    for (const std::vector<double>& weights : mixtures) {
        SCOPED_TRACE(::testing::PrintToString(weights));
        expect_shares(weights, 0, 3000);
        expect_shares(weights, 123'456'789'012, 300);
    }
}

TEST(Mixture, WeightsAreProportions) {
    const MixtureDealing a({3, 1}), b({0.75, 0.25});
    std::string dealt;
    for (std::int64_t example = 0; example < 12; ++example) {
        EXPECT_EQ(a.draw(example).dataset, b.draw(example).dataset);
        dealt += a.draw(example).dataset == 0 ? 'a' : 'b';
    }
    EXPECT_EQ(dealt, "aabaaabaaaba");
}

/// The rows of some epochs, by dataset.
std::vector<Samples> rows_by_dataset(const Mixture& mixture, std::int64_t epochs, bool shuffled,
                                     std::uint64_t seed) {
    std::vector<Samples> rows(mixture.sizes.size());
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
        for (std::int64_t row : mixed_order(mixture, epoch, shuffled, seed)) {
            std::size_t dataset = 0;
            for (; row >= mixture.sizes[dataset]; ++dataset) row -= mixture.sizes[dataset];
            rows[dataset].push_back(row);
        }
    return rows;
}

/// Passes of a dataset, the last of which may be unfinished.
std::vector<Samples> passes_of(const Samples& rows, std::int64_t size) {
    std::vector<Samples> passes;
    for (auto begin = rows.begin(); begin < rows.end();) {
        const auto end = begin + std::min<std::ptrdiff_t>(size, rows.end() - begin);
        passes.emplace_back(begin, end);
        begin = end;
    }
    return passes;
}

TEST(Mixture, EveryPassHasEachRowOnceWhereverEpochsEnd) {
    const Mixture mixture{.sizes = {7, 40, 13}, .weights = {5, 2, 1}};
    const auto rows = rows_by_dataset(mixture, 5, true, 42);
    EXPECT_EQ(rows[0].size() + rows[1].size() + rows[2].size(), 5U * 60);
    for (std::size_t dataset = 0; dataset < rows.size(); ++dataset) {
        const std::int64_t size = mixture.sizes[dataset];
        const auto passes = passes_of(rows[dataset], size);
        ASSERT_GT(passes.size(), 1U) << "the test passes each dataset more than once";
        std::set<Samples> orders(passes.begin(), passes.end());
        EXPECT_EQ(orders.size(), passes.size()) << "every pass has its own order";
        for (const Samples& pass : passes) {
            EXPECT_EQ(std::set<std::int64_t>(pass.begin(), pass.end()).size(), pass.size());
            for (const std::int64_t row : pass) EXPECT_TRUE(row >= 0 && row < size);
        }
    }
    // 187.5 of 300 examples, in a dataset of 7 rows.
    EXPECT_EQ(passes_of(rows[0], 7).size(), 27U);
}

TEST(Mixture, TheSeedAndTheDatasetDecideTheOrderOfRows) {
    const Mixture mixture{.sizes = {30, 30}, .weights = {1, 1}};
    const auto rows = rows_by_dataset(mixture, 2, true, 42);
    EXPECT_EQ(passes_of(rows[0], 30)[0], TorchRng(42).randperm(30)) << "as a dataset alone";
    EXPECT_EQ(passes_of(rows[0], 30)[1], TorchRng(43).randperm(30));
    EXPECT_NE(rows[1], rows[0]) << "rows of the same number may belong together";
    EXPECT_NE(rows_by_dataset(mixture, 2, true, 7), rows);
    EXPECT_EQ(rows_by_dataset(mixture, 2, true, 42), rows);
    // Where no row is shuffled, the seed has no effect.
    const auto in_order = rows_by_dataset({.sizes = {4, 6}, .weights = {3, 1}}, 1, false, 42);
    EXPECT_EQ(in_order, (std::vector<Samples>{{0, 1, 2, 3, 0, 1, 2, 3}, {0, 1}}));
}

SamplerOptions mixed_sampler(std::int64_t ranks, std::int64_t rank) {
    return {.samples = 100,
            .batch_size = 12 / ranks,
            .data_seed = 5,
            .ranks = ranks,
            .rank = rank,
            .mixture = Mixture{.sizes = {70, 10, 20}, .weights = {1, 3, 2}}};
}

TEST(Mixture, TheSameRowsMeetInAStepForAnyNumberOfRanks) {
    const Samples order = mixed_order(*mixed_sampler(1, 0).mixture, 4, true, 5);
    for (const std::int64_t ranks : {1, 2, 3, 4, 6})
        for (std::int64_t step = 0; step < 8; ++step) {
            Samples met;
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                BatchSampler sampler(mixed_sampler(ranks, rank));  // a new one: it has seen no batch before
                const Samples batch = sampler.batch(4, step);
                met.insert(met.end(), batch.begin(), batch.end());
            }
            EXPECT_EQ(met, Samples(order.begin() + 12 * step, order.begin() + 12 * step + 12))
                << ranks << " ranks, step " << step;
        }
}

TEST(Mixture, FillsUpAndDropsAsAnyOrder) {
    const Samples order = mixed_order(*mixed_sampler(1, 0).mixture, 1, true, 5);
    EXPECT_EQ(BatchSampler(mixed_sampler(1, 0)).batch(1, 8), Samples(order.begin() + 96, order.end()));
    BatchSampler last(mixed_sampler(3, 2));  // places 104 to 107 of 100
    EXPECT_EQ(last.filler(8), 4);
    EXPECT_EQ(last.batch(1, 8), Samples(order.begin() + 4, order.begin() + 8));
    SamplerOptions dropping = mixed_sampler(3, 2);
    dropping.drop_last = true;
    EXPECT_EQ(BatchSampler(dropping).batches_per_epoch(), 8);
}

}  // namespace
}  // namespace drover
