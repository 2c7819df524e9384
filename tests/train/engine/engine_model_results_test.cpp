#include <gtest/gtest.h>

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

/// Rows that are there again only to fill a batch: they are in its loss, as in transformers, but not counted.
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

}  // namespace
}  // namespace drover
