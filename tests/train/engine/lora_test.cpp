#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/test_backend.h"
#include "train/golden_lora.h"

namespace drover {
namespace {

class Lora : public ::testing::TestWithParam<const char*> {
  protected:
    test::GoldenLora golden_{GetParam()};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

/// The values of the leaves that are not trained.
std::map<std::string, std::vector<double>> frozen_values(const TrainEngine& engine) {
    std::map<std::string, std::vector<double>> frozen;
    for (const OwnedLeaf& leaf : engine.store().owned())
        if (!leaf.spec->trained) frozen[leaf.spec->name] = test::values(leaf.param);
    return frozen;
}

TEST_P(Lora, Float32LossAndEveryGradient) {
    const auto engine = golden_.engine(*backend_, golden_.options(Precision::fp32()));
    const std::vector<Batch> batches = {golden_.batch()};
    const UpdateResult result = engine->accumulate_gradients(batches);
    EXPECT_NEAR(result.loss, golden_.file().tensor("loss").data<float>()[0], 2e-6);
    int compared = 0;
    for (const OwnedLeaf& leaf : engine->store().owned()) {
        ASSERT_EQ(static_cast<bool>(leaf.gradient), leaf.spec->trained) << leaf.spec->name;
        if (!leaf.gradient) continue;
        EXPECT_LE(test::relative_error(leaf.gradient, golden_.file().tensor("grad." + leaf.spec->name)), 1e-5)
            << leaf.spec->name;
        ++compared;
    }
    EXPECT_EQ(compared, std::count_if(golden_.file().header().entries.begin(),
                                      golden_.file().header().entries.end(),
                                      [](const auto& entry) { return entry.name.starts_with("grad."); }));
}

TEST_P(Lora, GradientsOfTwoMicroBatchesAreAdded) {
    const auto once = golden_.engine(*backend_, golden_.options(Precision::fp32())),
               twice = golden_.engine(*backend_, golden_.options(Precision::fp32()));
    const std::vector<Batch> one = {golden_.batch()}, two = {golden_.batch(), golden_.batch()};
    EXPECT_NEAR(once->accumulate_gradients(one).loss, twice->accumulate_gradients(two).loss, 1e-6);
    for (std::size_t i = 0; i < once->store().owned().size(); ++i)
        if (const Tensor& gradient = once->store().owned()[i].gradient) {
            EXPECT_LE(test::relative_error(twice->store().owned()[i].gradient, gradient), 1e-5);
        }
}

TEST_P(Lora, StartsWithPeftsValues) {
    const auto engine = golden_.new_engine(*backend_, golden_.options(Precision::fp32()));
    for (const OwnedLeaf& leaf : engine->store().owned()) {
        if (!leaf.spec->is_adapter()) continue;
        if (leaf.spec->name.ends_with("lora_B.weight")) {
            EXPECT_EQ(test::values(leaf.param),
                      std::vector<double>(static_cast<std::size_t>(leaf.param.numel()), 0.0));
            continue;
        }
        EXPECT_LE(test::relative_error(leaf.param, golden_.file().tensor("init." + leaf.spec->name)),
                      leaf.spec->initial == Initial::adapter ? 0 : 1e-6)
                << leaf.spec->name;
    }
}

TEST_P(Lora, FollowsPeftsCurveAndLeavesTheModelAsItWas) {
    const auto engine = golden_.new_engine(*backend_, golden_.options(Precision::fp32()));
    const auto before = frozen_values(*engine);
    const Tensor curve = golden_.file().tensor("curve");
    const std::vector<Batch> batches = {golden_.batch()};
    for (std::int64_t step = 0; step < curve.size(0); ++step)
        EXPECT_NEAR(engine->step(batches, golden_.learning_rate()).loss, curve.data<float>()[step], 5e-4)
            << "step " << step;
    EXPECT_LT(curve.data<float>()[curve.size(0) - 1], curve.data<float>()[0] - 0.1);
    EXPECT_EQ(frozen_values(*engine), before);
}

TEST_P(Lora, Bfloat16FollowsFloat32) {
    for (const Precision& precision : {Precision::pure_bf16(), Precision::with_master(DType::bf16)}) {
        const auto engine = golden_.new_engine(*backend_, golden_.options(precision));
        const auto before = frozen_values(*engine);
        const Tensor curve = golden_.file().tensor("curve");
        const std::vector<Batch> batches = {golden_.batch()};
        for (std::int64_t step = 0; step < curve.size(0); ++step)
            EXPECT_NEAR(engine->step(batches, golden_.learning_rate()).loss, curve.data<float>()[step], 4e-2)
                << "step " << step;
        EXPECT_EQ(frozen_values(*engine), before);
        for (std::size_t i = 0; i < engine->store().owned().size(); ++i)
            EXPECT_EQ(static_cast<bool>(engine->optimizer().master(i)),
                      engine->store().owned()[i].spec->trained);
    }
}

TEST_P(Lora, EveryRecomputePolicyGivesTheSameBits) {
    for (const double dropout : {0.0, 0.3}) {
        if (dropout > 0 && golden_.adapters().magnitudes) continue;
        const auto make = [&](const RecomputePolicy& policy) {
            TrainEngineOptions options = golden_.options(Precision::fp32(), policy);
            options.model.adapters.dropout = dropout;
            return golden_.engine(*backend_, options);
        };
        const auto plain = make({});
        const std::vector<Batch> batches = {golden_.batch(), golden_.batch()};
        const UpdateResult expected = plain->accumulate_gradients(batches);
        for (const RecomputePolicy policy :
             {RecomputePolicy{Recompute::selective}, RecomputePolicy{Recompute::selective_mlp},
              RecomputePolicy{Recompute::full}, RecomputePolicy{Recompute::full, 1}}) {
            const auto engine = make(policy);
            const UpdateResult result = engine->accumulate_gradients(batches);
            EXPECT_EQ(result.loss, expected.loss);
            EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Peft, Lora,
                         ::testing::Values("llama", "llama_biases", "llama_ranks", "qwen2_rslora", "qwen3",
                                           "mixtral"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace drover
