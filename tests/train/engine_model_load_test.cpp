#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/engine_model.h"
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
    const std::vector<TokenBatch> batches = {golden.batch()};
    model.update(batches, 1e-2);
    EXPECT_NE(weights(), saved);
    model.load(folder / "best");
    EXPECT_EQ(weights(), saved);
}

}  // namespace
}  // namespace drover
