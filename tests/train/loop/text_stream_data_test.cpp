#include "train/loop/text_stream_data.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/fakes.h"
#include "data/sampling/mixture.h"
#include "support/errors.h"
#include "support/test_backend.h"
#include "train/loop/trainer.h"
#include "train/profile/profiled_run.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

constexpr std::int64_t block = 16;

TextStreamOptions options(std::int64_t text_rows, StreamEnd end = StreamEnd::never) {
    return {.datasets = {std::make_shared<test::MadeDataset>(test::uneven_rows(text_rows))},
            .tokenizer = test::byte_tokenizer(),
            .packing = {.block_size = block},
            .dealing = {.batch_size = 4},
            .vocab_size = 259,
            .end = end};
}

std::vector<Batch> batches_of(TextStreamData& data, std::int64_t first, std::size_t count) {
    const auto stream = data.open({0, first});
    std::vector<Batch> batches;
    while (batches.size() < count) batches.push_back(*stream->next());
    return batches;
}

/// The rows in order, as a TokenStream returns them.
std::vector<std::vector<TokenId>> blocks_of(const TextStreamOptions& options) {
    TokenStream stream(*options.datasets.front(), options.tokenizer, options.packing, 1);
    std::vector<std::vector<TokenId>> blocks;
    std::vector<TokenId> row;
    while (stream.next(row)) blocks.push_back(row);
    return blocks;
}

TEST(TextStreamData, GivesTheBlocksInOrderInEveryEpoch) {
    const TextStreamOptions text = options(300);
    const auto blocks = blocks_of(text);
    ASSERT_NE(blocks.size() % 4, 0u) << "the last batch of an epoch should be short here";
    TextStreamData data(text);
    EXPECT_EQ(data.samples(), 0);
    EXPECT_EQ(data.batches_per_epoch(), 0);
    const auto stream = data.open({});
    for (std::int64_t epoch = 0; epoch < 3; ++epoch)
        for (std::size_t row = 0, step = 0; row < blocks.size(); ++step) {
            const std::optional<Batch> batch = stream->next();
            ASSERT_TRUE(batch);
            EXPECT_EQ(batch->position, (BatchPosition{epoch, static_cast<std::int64_t>(step)}));
            EXPECT_EQ(batch->filler_rows, 0);
            ASSERT_EQ(batch->rows, static_cast<std::int64_t>(std::min<std::size_t>(4, blocks.size() - row)));
            for (std::int64_t i = 0; i < batch->rows; ++i, ++row)
                EXPECT_TRUE(
                    std::equal(blocks[row].begin(), blocks[row].end(), batch->ids.begin() + i * block));
        }
}

TEST(TextStreamData, CanBeOpenedAtAnyBatch) {
    TextStreamData data(options(300));
    const auto all = batches_of(data, 0, 200);
    ASSERT_GE(all.back().position.epoch, 2);
    for (const std::int64_t first : {1, 50, 117, 199}) {
        const Batch batch = batches_of(data, first, 1)[0];
        const Batch& expected = all[static_cast<std::size_t>(first)];
        EXPECT_EQ(batch.position, expected.position) << first;
        EXPECT_EQ(batch.ids, expected.ids) << first;
    }
}

TEST(TextStreamData, KnowsItsLengthOnceItWasReadToTheEnd) {
    TextStreamOptions text = options(300, StreamEnd::after_one_epoch);
    text.packing.max_rows = 13;
    TextStreamData data(text);
    EXPECT_EQ(data.samples(), 0);
    const auto stream = data.open({});
    while (stream->next()) {
    }
    EXPECT_EQ(data.samples(), 13);
    EXPECT_EQ(data.batches_per_epoch(), 4);
}

TEST(TextStreamData, CountsTheSamplesOfAllRanks) {
    TextStreamOptions text = options(300, StreamEnd::after_one_epoch);
    text.packing.max_rows = 13;
    text.dealing.ranks = 2;
    for (const std::int64_t rank : {0, 1}) {
        text.dealing.rank = rank;
        TextStreamData data(text);
        const auto stream = data.open({});
        while (stream->next()) {
        }
        EXPECT_EQ(data.samples(), 13) << rank;
        EXPECT_EQ(data.batches_per_epoch(), 2) << rank;
    }
}

/// Two datasets of different length, whose blocks differ.
TextStreamOptions two_datasets(std::vector<double> weights, StreamEnd end = StreamEnd::never) {
    TextStreamOptions both = options(60, end);
    both.datasets.push_back(std::make_shared<test::MadeDataset>(
        9, [](std::int64_t row) { return std::to_string(row) + " more"; }));
    both.weights = std::move(weights);
    return both;
}

/// The blocks of one of the datasets.
std::vector<std::vector<TokenId>> blocks_of_dataset(TextStreamOptions options, std::size_t dataset) {
    options.datasets = {options.datasets[dataset]};
    return blocks_of(options);
}

std::vector<std::vector<TokenId>> rows_of(const std::vector<Batch>& batches) {
    std::vector<std::vector<TokenId>> rows;
    for (const Batch& batch : batches)
        for (std::int64_t i = 0; i < batch.rows; ++i)
            rows.emplace_back(batch.ids.begin() + i * block, batch.ids.begin() + (i + 1) * block);
    return rows;
}

TEST(TextStreamData, MixesDatasetsByWeightAndReadsEachAgain) {
    const TextStreamOptions text = two_datasets({1, 3});
    const auto first = blocks_of_dataset(text, 0), second = blocks_of_dataset(text, 1);
    ASSERT_GT(first.size(), 20u);
    ASSERT_LT(second.size(), 15u);
    TextStreamData data(text);
    const auto all = batches_of(data, 0, 20);
    const auto rows = rows_of(all);
    ASSERT_EQ(rows.size(), 80u) << "no batch is short";
    const MixtureDealing dealing(text.weights);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto [dataset, number] = dealing.draw(static_cast<std::int64_t>(i));
        const auto& blocks = dataset == 0 ? first : second;
        EXPECT_EQ(rows[i], blocks[static_cast<std::size_t>(number) % blocks.size()]) << i;
    }
    for (const std::int64_t begin : {1, 13}) {
        const Batch batch = batches_of(data, begin, 1)[0];
        EXPECT_EQ(batch.position, (BatchPosition{0, begin}));
        EXPECT_EQ(batch.ids, all[static_cast<std::size_t>(begin)].ids);
    }
    TextStreamOptions part = text;
    part.dealing = {.batch_size = 2, .ranks = 2, .rank = 1};
    TextStreamData second_rank(part);
    EXPECT_EQ(rows_of(batches_of(second_rank, 3, 1)),
              (std::vector<std::vector<TokenId>>{rows[14], rows[15]}));
}

TEST(TextStreamData, CutsAMixtureAndBeginsItAgain) {
    TextStreamOptions text = two_datasets({1, 3});
    text.packing.max_rows = 8;
    TextStreamData data(text);
    const auto batches = batches_of(data, 0, 4);
    EXPECT_EQ(batches[2].position, (BatchPosition{1, 0}));
    EXPECT_EQ(batches[2].ids, batches[0].ids);
    EXPECT_NE(batches[1].ids, batches[0].ids);
}

TEST(TextStreamData, WithoutWeightsOneDatasetFollowsTheOther) {
    TextStreamOptions text = two_datasets({}, StreamEnd::after_one_epoch);
    auto expected = blocks_of_dataset(text, 0);
    for (auto& row : blocks_of_dataset(text, 1)) expected.push_back(row);
    TextStreamData data(text);
    const auto stream = data.open({});
    std::vector<Batch> batches;
    while (auto batch = stream->next()) batches.push_back(std::move(*batch));
    EXPECT_EQ(rows_of(batches), expected);
    EXPECT_EQ(data.samples(), static_cast<std::int64_t>(expected.size()));
}

TEST(TextStreamData, SaysWhichDatasetIsTooShort) {
    TextStreamOptions text = two_datasets({1, 1});
    text.datasets[1] = std::make_shared<test::MadeDataset>(1, [](std::int64_t) { return std::string("x"); });
    TextStreamData data(text);
    test::expect_error([&] { data.open({})->next(); },
                       {"Dataset 2 of the mixture is too short for one block of 16 tokens"});
}

TEST(TextStreamData, SaysWhenTheTextIsTooShortOrOfAnotherVocabulary) {
    TextStreamData short_text(options(1));
    test::expect_error([&] { short_text.open({})->next(); }, {"too short", "blocks of 16 tokens"});
    TextStreamOptions small = options(300);
    small.vocab_size = 40;
    TextStreamData other(small);
    test::expect_error([&] { other.open({})->next(); }, {"vocabulary ends at 39"});
}

/// Records the rows of each update.
class WindowModel final : public TrainingModel {
  public:
    UpdateResult update(std::span<const Batch> batches, double) override {
        std::int64_t rows = 0;
        for (const Batch& batch : batches) rows += batch.rows;
        windows.push_back({static_cast<std::int64_t>(batches.size()), rows});
        return {.loss = static_cast<double>(batches.size())};
    }
    std::vector<BatchEvaluation> evaluate(const Batch&) override { return {}; }
    void save(const std::filesystem::path&) override {}
    void load(const std::filesystem::path&) override {}
    void save_checkpoint(const CheckpointRequest& request) override { saved.push_back(request.loop); }
    std::optional<CheckpointOutcome> checkpoint_outcome(bool) override { return std::nullopt; }
    ParameterCounts parameters() const override { return {}; }

    std::vector<std::pair<std::int64_t, std::int64_t>> windows;  ///< batches and rows of every update
    std::vector<LoopState> saved;
};

TEST(TextStreamData, WindowsOfAccumulationRunAcrossTheEndsOfEpochs) {
    TextStreamOptions text = options(300);
    text.packing.max_rows = 18;  // five batches, the last of two rows
    TextStreamData data(text);
    WindowModel model;
    TrainerSettings settings;
    settings.max_steps = 5;
    settings.per_device_train_batch_size = 4;
    settings.gradient_accumulation_steps = 2;
    settings.save_strategy = IntervalStrategy::no;
    settings.logging_steps = 1;
    settings.finish();
    Trainer trainer(settings, model, &data, nullptr);
    trainer.train();
    using Windows = std::vector<std::pair<std::int64_t, std::int64_t>>;
    EXPECT_EQ(model.windows, (Windows{{2, 8}, {2, 8}, {2, 6}, {2, 8}, {2, 6}}));
    std::vector<double> epochs;
    for (const Json& record : trainer.state().log_history)
        if (record.contains("loss")) epochs.push_back(record.at("epoch"));
    EXPECT_EQ(epochs, (std::vector<double>{0.2, 0.4, 1.1, 1.3, 1.5}));
}

TEST(TextStreamData, ARunIsResumedAtTheBatchThatComesNext) {
    TextStreamOptions text = options(300);
    text.packing.max_rows = 18;
    TextStreamData data(text);
    WindowModel model;
    TrainerSettings settings;
    settings.max_steps = 8;
    settings.per_device_train_batch_size = 4;
    settings.save_strategy = IntervalStrategy::no;
    settings.finish();
    TrainerState state = TrainerState::begin(settings, 8, 1);
    state.global_step = 4;
    Trainer trainer(settings, model, &data, nullptr);
    trainer.train(&state);
    using Windows = std::vector<std::pair<std::int64_t, std::int64_t>>;
    EXPECT_EQ(model.windows, (Windows{{1, 2}, {1, 4}, {1, 4}, {1, 4}}));
    EXPECT_EQ(trainer.state().global_step, 8);
    EXPECT_DOUBLE_EQ(*trainer.state().epoch, 1 + 3 / 8.0);
}

TEST(TextStreamData, ARunIsResumedInTheMiddleOfAPass) {
    TextStreamOptions text = options(300);
    text.packing.max_rows = 18;  // five batches, so that windows of two cross the ends of passes
    TextStreamData data(text);
    TrainerSettings settings;
    settings.max_steps = 9;
    settings.per_device_train_batch_size = 4;
    settings.gradient_accumulation_steps = 2;
    settings.save_steps = 1;
    settings.finish();
    WindowModel whole;
    Trainer(settings, whole, &data, nullptr).train();
    ASSERT_EQ(whole.saved.size(), 9u);
    for (const std::size_t done : {2u, 3u, 5u}) {
        TrainerState state = TrainerState::begin(settings, 9, 1);
        state.global_step = static_cast<std::int64_t>(done);
        WindowModel rest;
        Trainer trainer(settings, rest, &data, nullptr);
        trainer.train(&state, &whole.saved[done - 1]);
        EXPECT_EQ(rest.windows,
                  decltype(rest.windows)(whole.windows.begin() + static_cast<std::ptrdiff_t>(done),
                                         whole.windows.end()))
            << done;
        EXPECT_EQ(rest.saved.back().json(), whole.saved.back().json()) << done;
    }
}

/// A stream's epochs end where it shows.
TEST(TextStreamData, AProfileBeginsAfterAStepOfALaterPass) {
    TextStreamOptions text = options(300);
    text.packing.max_rows = 18;  // five batches
    TextStreamData data(text);
    TrainerSettings settings;
    settings.max_steps = 9;
    settings.per_device_train_batch_size = 4;
    settings.save_steps = 1;
    settings.finish();
    WindowModel model;
    const auto backend = test::make_test_backend();
    const auto profiled_after = [&](std::int64_t step, const LoopState* loop) {
        const test::TemporaryFolder folder;
        Profiler profiler(
            *backend, test::single_mesh(),
            {.after = ProfilerSettings::After{.epoch = 1, .step = step}, .steps = 1, .folder = folder.path()},
            [](CollectiveObserver*, UnderWay) {}, [](const std::string&) {});
        TrainerState state = TrainerState::begin(settings, 9, 1);
        if (loop != nullptr) state.global_step = loop->step;
        Trainer trainer(settings, model, &data, nullptr);
        trainer.add_callback(profiler);
        trainer.train(loop == nullptr ? nullptr : &state, loop);
        return test::steps_of(profiler);
    };
    using Steps = std::vector<std::int64_t>;
    EXPECT_EQ(profiled_after(0, nullptr), Steps{7});
    const LoopState after_six = model.saved.at(5);
    EXPECT_EQ(profiled_after(2, &after_six), Steps{9}) << "resumed";
}

}  // namespace
}  // namespace drover
