#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/backend.h"
#include "backend/operation_profile.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/train_engine.h"
#include "train/golden_step.h"
#include "train/single_mesh.h"

// `router_jitter_noise`: in training, the input of router and experts is multiplied by noise.

namespace drover {
namespace {

constexpr std::int64_t rows = 2, row_length = 12;

ModelConfig config_with(double jitter) {
    ModelConfig config = ModelConfig::parse(
        R"({"model_type": "mixtral", "vocab_size": 48, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "initializer_range": 0.2,
            "output_router_logits": true, "router_aux_loss_coef": 0.02})",
        "test");
    config.moe.jitter = jitter;
    return config;
}

Batch random_batch(unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<std::int32_t> ids(rows * row_length);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(generator() % 48);
    return Batch::full_rows(rows, row_length, ids, ids);
}

class RouterJitter : public ::testing::Test {
  protected:
    std::unique_ptr<TrainEngine> engine(double jitter, Recompute recompute = Recompute::none,
                                        const Precision& precision = Precision::fp32(),
                                        std::uint64_t seed = 42) {
        auto engine = std::make_unique<TrainEngine>(config_with(jitter),
                                                    TrainEngineOptions{.model = {.precision = precision,
                                                                                 .recompute = {recompute},
                                                                                 .rows = rows,
                                                                                 .row_length = row_length},
                                                                       .max_gradient_norm = 1.0,
                                                                       .compat = {},
                                                                       .noise_seed = seed},
                                                    *backend_, test::single_mesh());
        engine->allocate();
        engine->initialize_weights(1);
        return engine;
    }

    static std::vector<std::vector<double>> gradients(const TrainEngine& engine) {
        std::vector<std::vector<double>> result;
        for (const OwnedLeaf& leaf : engine.store().owned()) result.push_back(test::values(leaf.gradient));
        return result;
    }

    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const std::vector<Batch> batches_ = {random_batch(5)};
};

TEST_F(RouterJitter, GradientsAreThoseOfTheLossAtTheSameNoise) {
    const auto trained = engine(0.3);
    trained->accumulate_gradients(batches_);
    const auto exact = gradients(*trained);
    const auto loss = [&] { return trained->accumulate_gradients(batches_).loss; };
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const OwnedLeaf& leaf = trained->store().owned()[i];
        double norm = 0;
        for (const double value : exact[i]) norm += value * value;
        norm = std::sqrt(norm);
        ASSERT_GT(norm, 1e-4) << leaf.spec->name;
        // Along the gradient, where the loss changes most: its slope there is the gradient's norm.
        const std::vector<double> before = test::values(leaf.param);
        const auto loss_at = [&](double distance) {
            std::vector<float> weights;
            for (std::size_t j = 0; j < before.size(); ++j)
                weights.push_back(static_cast<float>(before[j] + distance * exact[i][j] / norm));
            test::overwrite(leaf.param, 0, weights);
            return loss();
        };
        constexpr double distance = 2e-3;
        const double slope = (loss_at(distance) - loss_at(-distance)) / (2 * distance);
        test::overwrite(leaf.param, 0, std::vector<float>(before.begin(), before.end()));
        EXPECT_NEAR(slope / norm, 1, 1e-2) << leaf.spec->name;
    }
}

TEST_F(RouterJitter, GivesTransformersNumbersForThisNoise) {
    const SafetensorsFile expected(test::golden_path("step/mixtral_jitter_float32.safetensors"));
    test::GoldenStep golden("mixtral_aux_top2_float32");
    golden.set_config(ModelConfig::parse(expected.header().metadata.at("config"), "mixtral_jitter"));
    EXPECT_EQ(golden.config().moe.jitter, 0.1);
    for (const MoeMode mode : {MoeMode::grouped, MoeMode::stacked, MoeMode::all_tokens}) {
        const auto trained = golden.engine(*backend_, Precision::fp32(), {Recompute::selective}, mode);
        const std::vector<Batch> batches = {golden.batch()};
        EXPECT_NEAR(trained->accumulate_gradients(batches).loss, expected.tensor("loss").data<float>()[0],
                    2e-6);
        EXPECT_EQ(test::expect_gradients(*trained, expected, 1e-5), 3 + 2 * (4 + 2 + 1 + 3));
    }
}

TEST_F(RouterJitter, RecomputePoliciesGiveTheSameBits) {
    for (const Precision& precision : {Precision::fp32(), Precision::pure_bf16()}) {
        const std::vector<Batch> two = {random_batch(5), random_batch(6)};
        const auto plain = engine(0.1, Recompute::none, precision);
        const double loss = plain->accumulate_gradients(two).loss;
        for (const Recompute recompute : {Recompute::selective, Recompute::selective_mlp,
                                          Recompute::selective_attention, Recompute::full}) {
            const auto other = engine(0.1, recompute, precision);
            EXPECT_EQ(other->accumulate_gradients(two).loss, loss);
            EXPECT_EQ(gradients(*other), gradients(*plain));
        }
    }
}

TEST_F(RouterJitter, EveryStepMicroBatchAndSeedHasItsOwnNoise) {
    const auto loss = [&](TrainEngine& of, const std::vector<Batch>& batches) {
        return of.accumulate_gradients(batches).loss;
    };
    const auto first = engine(0.1);
    const double expected = loss(*first, batches_);
    EXPECT_EQ(loss(*first, batches_), expected);  // no update in between: the same step
    EXPECT_NE(loss(*engine(0.1, Recompute::none, Precision::fp32(), 43), batches_), expected);
    first->step(batches_, 0.0);
    EXPECT_NE(loss(*first, batches_), expected);  // the weights are the same, the step is not

    // With equal noise, the mean of two losses would be the single loss again.
    const auto second = engine(0.1);
    EXPECT_GT(std::fabs(loss(*second, {batches_[0], batches_[0]}) - expected), 1e-5);
}

TEST_F(RouterJitter, EvaluationSeesNone) {
    const EvaluationResult with = engine(0.5)->evaluate(batches_[0]),
                           without = engine(0)->evaluate(batches_[0]);
    EXPECT_EQ(with.loss_sum, without.loss_sum);
    EXPECT_EQ(with.balance_loss, without.balance_loss);
    EXPECT_NE(engine(0.5)->accumulate_gradients(batches_).loss,
              engine(0)->accumulate_gradients(batches_).loss);
}

TEST_F(RouterJitter, OfZeroRunsNothing) {
    const auto calls = [&](double jitter) {
        const auto trained = engine(jitter);
        const OperationProfile profile(*backend_);
        trained->accumulate_gradients(batches_);
        for (const OperationTotal& total : profile.totals())
            if (total.cost.name == "jitter") return total.calls;
        return std::int64_t{0};
    };
    EXPECT_EQ(calls(0), 0);
    EXPECT_EQ(calls(0.1), 2 * 2);  // forward and backward of two blocks
}

}  // namespace
}  // namespace drover
