#include <gtest/gtest.h>

#include <algorithm>

#include "core/text_file.h"
#include "io/safetensors.h"
#include "support/test_backend.h"
#include "train/engine/engine_model.h"
#include "train/golden_step.h"

namespace drover {
namespace {

/// What load_best_model_at_end does with the best checkpoint.
TEST(EngineModel, LoadsTheWeightsThatItSaved) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend, golden.options(Precision::fp32()));
    EngineModel model(*engine, golden.config(), *backend, test::single_mesh());
    const test::TemporaryFolder folder;
    const auto weights = [&] {
        std::vector<std::vector<double>> all;
        for (const OwnedLeaf& leaf : engine->store().owned()) all.push_back(test::values(leaf.param));
        return all;
    };
    const auto saved = weights();
    model.save(folder / "best");
    const std::vector<Batch> batches = {golden.batch()};
    model.update(batches, 1e-2);
    EXPECT_NE(weights(), saved);
    model.load(folder / "best");
    EXPECT_EQ(weights(), saved);
}

/// Also from a checkpoint of the Hugging Face Trainer; the saved file then has the loaded values.
TEST(EngineModel, TakesOverTheMomentsOfHf) {
    const auto backend = make_cpu_backend();
    const std::filesystem::path checkpoint = test::golden_path("trainer_checkpoint/llama_adamw/checkpoint-4");
    const ModelConfig config = ModelConfig::parse(read_text_file(checkpoint / "config.json"), "config.json");
    TrainEngine engine(config, {.model = {.precision = Precision::fp32(), .rows = 1, .row_length = 8}},
                       *backend, test::single_mesh());
    engine.allocate();
    EngineModel model(engine, config, *backend, test::single_mesh());
    EXPECT_FALSE(model.resume(checkpoint));
    const test::TemporaryFolder folder;
    model.save_checkpoint({.folder = folder / "checkpoint-4", .trainer_state = "{}", .loop = {}});
    ASSERT_EQ(model.checkpoint_outcome(true)->error, "");

    const SafetensorsFile saved(folder / "checkpoint-4/optimizer.safetensors");
    ASSERT_FALSE(saved.header().entries.empty());
    for (const SafetensorsEntry& entry : saved.header().entries) {
        const std::vector<double> moments = test::values(saved.tensor(entry));
        EXPECT_TRUE(std::ranges::any_of(moments, [](double moment) { return moment != 0; })) << entry.name;
    }
}

/// Rows repeated only to fill a batch: they are in its loss, as in transformers, but not counted.
TEST(EngineModel, DoesNotCountTheTargetsOfFillerRows) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend, golden.options(Precision::fp32()));
    EngineModel model(*engine, golden.config(), *backend, test::single_mesh());
    Batch batch = golden.batch();
    ASSERT_GE(batch.rows, 2);
    const auto whole = model.evaluate(batch).at(0);
    EXPECT_EQ(whole.targets, batch.target_count());
    EXPECT_EQ(whole.rows, batch.rows);
    batch.filler_rows = batch.rows - 1;
    const auto first = model.evaluate(batch).at(0);
    EXPECT_EQ(first.targets, batch.some_rows(0, 1).target_count());
    EXPECT_EQ(first.rows, 1);
    EXPECT_EQ(first.loss, whole.loss);
}

/// One replica's part of a shared batch is the whole batch.
TEST(EngineModel, APartOfASharedBatchCountsAsItIs) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend, golden.options(Precision::fp32()));
    const Batch batch = golden.batch();
    Batch part = batch;
    part.part_of = batch.whole();
    EngineModel model(*engine, golden.config(), *backend, test::single_mesh());
    const auto results_of = [&](const Batch& evaluated) {
        const std::vector<BatchEvaluation> results = model.evaluate(evaluated);
        EXPECT_EQ(results.size(), 1u);
        return results.at(0);
    };
    // Updates until some of the targets are the likeliest tokens.
    const std::vector<Batch> batches = {batch};
    for (int step = 0; step < 20; ++step) model.update(batches, 1e-2);
    const BatchEvaluation own = results_of(batch), shared = results_of(part);
    EXPECT_GT(own.correct, 0);
    EXPECT_EQ(shared.loss, own.loss);
    EXPECT_EQ(shared.rows, own.rows);
    EXPECT_EQ(shared.targets, own.targets);
    EXPECT_EQ(shared.correct, own.correct);
}

}  // namespace
}  // namespace drover
