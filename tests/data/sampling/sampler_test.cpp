#include "data/sampling/sampler.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/torch_rng.h"
#include "data/sampling/stream_batches.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Samples = std::vector<std::int64_t>;
using Batches = std::vector<Samples>;

const Json& golden() {
    static const Json json = read_json_file(test::golden_path("samplers.json"));
    return json;
}

SamplerOptions options_of(const Json& test_case) {
    return {.samples = test_case["samples"],
            .batch_size = test_case["batch_size"],
            .order = test_case["order"] == "shuffled" ? SampleOrder::shuffled : SampleOrder::sequential,
            .seed = golden()["seed"],
            .ranks = test_case["ranks"],
            .drop_last = test_case["drop_last"]};
}

TEST(Sampler, DealsAsAccelerate) {
    int compared = 0;
    for (const Json& test_case : golden()["dealt"]) {
        SamplerOptions options = options_of(test_case);
        for (; options.rank < options.ranks; ++options.rank) {
            const auto expected = test_case["batches"][static_cast<std::size_t>(options.rank)].get<Batches>();
            BatchSampler sampler(options);
            ASSERT_EQ(sampler.batches_per_epoch(), static_cast<std::int64_t>(expected.size()))
                << test_case << " rank " << options.rank;
            // Backwards: a batch does not depend on which one was requested before.
            for (std::size_t step = expected.size(); step-- > 0;)
                ASSERT_EQ(sampler.batch(test_case["epoch"], static_cast<std::int64_t>(step)), expected[step])
                    << test_case << " rank " << options.rank;
            ++compared;
        }
    }
    EXPECT_EQ(compared, 144);
}

TEST(Sampler, StreamsAreDealtAsAccelerate) {
    int compared = 0;
    for (const Json& test_case : golden()["streams"]) {
        StreamDealing dealing{.batch_size = test_case["batch_size"], .ranks = test_case["ranks"]};
        for (; dealing.rank < dealing.ranks; ++dealing.rank) {
            TokenId next = 0;
            StreamBatches stream(
                [&](TokenRow& row) {
                    row.ids = {next};
                    return next++ < test_case["samples"].get<TokenId>();
                },
                dealing);
            Batches got;
            std::vector<TokenRow> rows;
            while (stream.next(rows)) {
                got.emplace_back();
                for (const TokenRow& row : rows) got.back().push_back(row.ids.at(0));
            }
            EXPECT_EQ(got, test_case["batches"][static_cast<std::size_t>(dealing.rank)].get<Batches>())
                << test_case << " rank " << dealing.rank;
            ++compared;
        }
    }
    EXPECT_EQ(compared, 30);
}

/// DistributedSampler(shuffle=False, drop_last=True) under a loader that drops its last batch.
TEST(Sampler, DealsOneByOneAsPyTorch) {
    const auto batches_of = [](std::int64_t rank) {
        BatchSampler sampler({.samples = 15,
                              .batch_size = 2,
                              .order = SampleOrder::sequential,
                              .ranks = 3,
                              .rank = rank,
                              .drop_last = true,
                              .strided = true});
        Batches batches;
        for (std::int64_t step = 0; step < sampler.batches_per_epoch(); ++step)
            batches.push_back(sampler.batch(1, step));
        return batches;
    };
    EXPECT_EQ(batches_of(0), (Batches{{0, 3}, {6, 9}}));
    EXPECT_EQ(batches_of(2), (Batches{{2, 5}, {8, 11}}));
}

TEST(Sampler, GroupsByLengthAsTransformers) {
    ASSERT_FALSE(golden().at("by_length").empty());
    for (const Json& test_case : golden()["by_length"]) {
        TorchRng generator(test_case["samples"].get<std::uint64_t>());
        Samples lengths(test_case["samples"].get<std::size_t>());
        for (std::int64_t& length : lengths) length = generator.randint(1, 60);
        const Samples order = length_grouped_order(lengths, test_case["batch_size"], golden()["seed"]);
        const auto first = test_case["first"].get<Samples>();
        EXPECT_EQ(Samples(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
        std::uint64_t digest = 0;
        constexpr std::uint64_t modulus = (std::uint64_t{1} << 56) - 5;
        for (const std::int64_t index : order)
            digest = (digest * 31 + static_cast<std::uint64_t>(index)) % modulus;
        EXPECT_EQ(digest, test_case["digest"].get<std::uint64_t>());
    }
}

TEST(Sampler, ByLengthUsesTheGroupAndTheEpoch) {
    Samples lengths(400);
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i * 37 % 101);
    BatchSampler sampler({.samples = 400,
                          .batch_size = 4,
                          .order = SampleOrder::by_length,
                          .seed = 7,
                          .lengths = lengths,
                          .length_group = 8});
    const Samples order = length_grouped_order(lengths, 8, 7 + 3);
    for (std::int64_t step = 0; step < 100; ++step)
        EXPECT_EQ(sampler.batch(3, step), Samples(order.begin() + 4 * step, order.begin() + 4 * step + 4));
}

TEST(Sampler, DataSeedWinsOverSeed) {
    BatchSampler sampler({.samples = 50, .batch_size = 50, .seed = 1, .data_seed = 9});
    EXPECT_EQ(sampler.batch(0, 0), TorchRng(9).randperm(50));
    EXPECT_EQ(sampler.batch(4, 0), TorchRng(13).randperm(50));
    EXPECT_EQ(sampler.batch(0, 0), TorchRng(9).randperm(50)) << "an earlier epoch again";
}

TEST(Sampler, TheSameSamplesMeetInAStepForAnyNumberOfRanks) {
    // ranks · batch_size is constant: each step must see the same samples.
    const auto step_samples = [](std::int64_t ranks, std::int64_t step) {
        std::set<std::int64_t> all;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            BatchSampler sampler({.samples = 100, .batch_size = 12 / ranks, .ranks = ranks, .rank = rank});
            for (const std::int64_t sample : sampler.batch(5, step)) all.insert(sample);
        }
        return all;
    };
    for (std::int64_t step = 0; step < 8; ++step)
        for (const std::int64_t ranks : {2, 3, 4, 6})
            EXPECT_EQ(step_samples(ranks, step), step_samples(1, step));
}

TEST(Sampler, WithoutFillerEverySampleComesOnce) {
    for (const std::int64_t samples : {1, 9, 16, 23}) {
        std::multiset<std::int64_t> seen;
        for (std::int64_t rank = 0; rank < 3; ++rank) {
            BatchSampler sampler({.samples = samples,
                                  .batch_size = 2,
                                  .order = SampleOrder::sequential,
                                  .ranks = 3,
                                  .rank = rank});
            for (std::int64_t step = 0; step < sampler.batches_per_epoch(); ++step) {
                const Samples batch = sampler.batch(0, step);
                const std::int64_t filler = sampler.filler(step);
                ASSERT_LE(filler, static_cast<std::int64_t>(batch.size()));
                seen.insert(batch.begin(), batch.end() - filler);
            }
        }
        std::multiset<std::int64_t> all;
        for (std::int64_t i = 0; i < samples; ++i) all.insert(i);
        EXPECT_EQ(seen, all) << samples;
    }
}

TEST(Sampler, RefusesWhatCannotBeDealt) {
    test::expect_error<UsageError>([&] { BatchSampler({.samples = 4, .batch_size = 0}); },
                                   {"batch size is 0"});
    EXPECT_EQ(BatchSampler({.samples = 0}).batches_per_epoch(), 0);
}

}  // namespace
}  // namespace drover
