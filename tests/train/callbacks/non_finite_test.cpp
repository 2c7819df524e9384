#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

using test::everything;

class NonFiniteSteps : public ::testing::Test {
  protected:
    std::unique_ptr<TrainEngine> engine(bool skips, const std::string& optimizer = "adamw_torch") {
        TrainEngineOptions options = golden_.options(Precision::fp32());
        options.skip_non_finite = skips;
        options.optimizer = OptimizerSettings::named(optimizer, 0.1);
        return golden_.engine(*backend_, options);
    }

    static const OwnedLeaf& leaf(const TrainEngine& engine, std::string_view name) {
        for (const OwnedLeaf& leaf : engine.store().owned())
            if (leaf.spec->name == name) return leaf;
        throw std::runtime_error("no such leaf");
    }

    static void fill(const TrainEngine& engine, std::string_view name, float value) {
        const Tensor param = leaf(engine, name).param;
        test::overwrite(param, 0, std::vector<float>(static_cast<std::size_t>(param.numel()), value));
    }

    static void set(const TrainEngine& engine, std::string_view name, std::int64_t index, float value) {
        test::overwrite(leaf(engine, name).param, index, {&value, 1});
    }

    const test::GoldenStep golden_{"gqa_float32"};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const std::vector<Batch> batches_ = {golden_.batch()};
    static constexpr float nan = std::numeric_limits<float>::quiet_NaN();
};

TEST_F(NonFiniteSteps, AreSkippedWithoutATrace) {
    for (const char* optimizer : {"adamw_torch", "adafactor", "sgd", "adagrad", "rmsprop"}) {
        const auto trained = engine(true, optimizer);
        trained->step(batches_, 1e-3);
        const auto before = everything(*trained);
        constexpr const char* name = "model.layers.1.mlp.down_proj.weight";
        const double kept = test::values(leaf(*trained, name).param)[5];
        set(*trained, name, 5, nan);
        const UpdateResult bad = trained->step(batches_, 1e-3);
        set(*trained, name, 5, static_cast<float>(kept));
        EXPECT_FALSE(bad.updated) << optimizer;
        EXPECT_TRUE(std::isnan(bad.loss)) << optimizer;
        EXPECT_EQ(trained->updates_done(), 1) << optimizer;
        EXPECT_EQ(everything(*trained), before) << optimizer;

        // The next steps are the same as without the bad step.
        const auto other = engine(true, optimizer);
        other->step(batches_, 1e-3);
        EXPECT_EQ(trained->step(batches_, 1e-3).loss, other->step(batches_, 1e-3).loss) << optimizer;
        EXPECT_EQ(everything(*trained), everything(*other)) << optimizer;
    }
}

TEST_F(NonFiniteSteps, GoOnWhenNotAskedToBeSkipped) {
    const auto trained = engine(false);
    set(*trained, "model.norm.weight", 0, nan);
    const UpdateResult bad = trained->step(batches_, 1e-3);
    EXPECT_TRUE(bad.updated);
    EXPECT_TRUE(bad.non_finite.has_value());
    EXPECT_EQ(trained->updates_done(), 1);
    EXPECT_TRUE(std::isnan(test::values(leaf(*trained, "lm_head.weight").param)[0]));
}

TEST_F(NonFiniteSteps, NameABadWeight) {
    const auto trained = engine(true);
    EXPECT_FALSE(trained->step(batches_, 1e-3).non_finite.has_value());
    set(*trained, "model.layers.1.self_attn.k_proj.weight", 3, nan);
    set(*trained, "model.norm.weight", 3, std::numeric_limits<float>::infinity());
    const auto found = trained->step(batches_, 1e-3).non_finite;
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(*found, "the weight model.layers.1.self_attn.k_proj.weight");
}

/// Finite weights whose product overflows.
TEST_F(NonFiniteSteps, NameTheLayerWhoseOutputOverflows) {
    const auto where_with = [&](std::string_view name, float value) {
        const auto trained = engine(true);
        fill(*trained, name, value);
        if (name.ends_with("down_proj.weight")) fill(*trained, "model.layers.1.mlp.up_proj.weight", 1e20f);
        const auto found = trained->step(batches_, 1e-3).non_finite;
        return found.value_or("nothing");
    };
    EXPECT_EQ(where_with("model.layers.1.mlp.down_proj.weight", 3e38f),
              "the output of layer 1 (model.layers.1)");
    EXPECT_EQ(where_with("model.layers.0.self_attn.o_proj.weight", 3e38f),
              "the output of layer 0 (model.layers.0)");
    EXPECT_EQ(where_with("model.norm.weight", 3e38f), "the final norm (model.norm)");
    EXPECT_EQ(where_with("lm_head.weight", 3e38f), "the logits (lm_head)");
}

/// The loss is finite, but a gradient is not: the first bad one in backward is named.
TEST_F(NonFiniteSteps, NameTheFirstBadGradientOfBackward) {
    const auto trained = engine(true);
    // Layer 1 adds almost nothing in forward, and the gradient through it overflows.
    fill(*trained, "model.layers.1.mlp.gate_proj.weight", 0);
    fill(*trained, "model.layers.1.mlp.up_proj.weight", 1e10f);
    fill(*trained, "model.layers.1.mlp.down_proj.weight", 3e38f);
    const UpdateResult result = trained->step(batches_, 1e-3);
    ASSERT_TRUE(std::isfinite(result.loss));
    ASSERT_FALSE(std::isfinite(result.gradient_norm));
    ASSERT_TRUE(result.non_finite.has_value());
    EXPECT_EQ(result.non_finite->find("the gradient of model.layers.1.mlp."), 0u) << *result.non_finite;
}

}  // namespace
}  // namespace drover
