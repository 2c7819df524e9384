#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/counter_rng.h"
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
    EXPECT_EQ(compared,
              std::count_if(golden_.file().header().entries.begin(), golden_.file().header().entries.end(),
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
        if (leaf.spec->initial == Initial::zeros) {
            EXPECT_EQ(test::values(leaf.param),
                      std::vector<double>(static_cast<std::size_t>(leaf.param.numel()), 0.0));
            continue;
        }
        EXPECT_LE(test::relative_error(leaf.param, golden_.file().tensor("init." + leaf.spec->name)),
                  leaf.spec->initial == Initial::ones ? 1e-6 : 0)
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
              RecomputePolicy{Recompute::selective_attention},
              RecomputePolicy{Recompute::selective_attention, 1}, RecomputePolicy{Recompute::full},
              RecomputePolicy{Recompute::full, 1}}) {
            const auto engine = make(policy);
            const UpdateResult result = engine->accumulate_gradients(batches);
            EXPECT_EQ(result.loss, expected.loss);
            EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
        }
    }
}

TEST_P(Lora, DropoutHasTheGradientsOfItsLossAndNoEffectOnEvaluation) {
    TrainEngineOptions options = golden_.options(Precision::fp32());
    const auto plain = golden_.engine(*backend_, options);
    options.model.adapters.dropout = 0.4;
    const auto engine = golden_.engine(*backend_, options);
    EXPECT_EQ(engine->evaluate(golden_.batch()).loss_sum, plain->evaluate(golden_.batch()).loss_sum);

    const std::vector<Batch> batches = {golden_.batch()};
    const double loss = engine->accumulate_gradients(batches).loss;
    EXPECT_GT(std::fabs(loss - plain->accumulate_gradients(batches).loss), 1e-4);
    // Along a random direction. The noise of a step is the same every time.
    const auto direction = [](const LeafSpec& leaf) {
        std::vector<float> values(static_cast<std::size_t>(leaf.shape.numel()));
        CounterRng(3, 0).fill_normal(leaf_hash(leaf.name), 0, values, 0, 1);
        return values;
    };
    double expected = 0;
    for (const OwnedLeaf& leaf : engine->store().owned()) {
        if (!leaf.gradient) continue;
        const std::vector<double> gradient = test::values(leaf.gradient);
        const std::vector<float> along = direction(*leaf.spec);
        for (std::size_t i = 0; i < along.size(); ++i)
            expected += gradient[i] * static_cast<double>(along[i]);
    }
    const auto loss_at = [&](float distance) {
        std::vector<float> moved;
        engine->load_adapters([&](const LeafSpec& leaf) {
            const std::vector<double> start = test::values(golden_.file().tensor("adapter." + leaf.name));
            const std::vector<float> along = direction(leaf);
            moved.clear();
            for (std::size_t i = 0; i < along.size(); ++i)
                moved.push_back(static_cast<float>(start[i]) + distance * along[i]);
            return Tensor::of(moved.data(), leaf.shape);
        });
        return engine->accumulate_gradients(batches).loss;
    };
    // DoRA takes the lengths of rows as constants, so its gradient is another one. Between two points a token
    // may choose another expert: the nearest of several differences, to either side, counts.
    if (golden_.adapters().magnitudes) return;
    double nearest = 1e9;
    for (const float step : {2e-3f, 6e-4f, 3e-4f}) {
        const double above = (loss_at(step) - loss) / static_cast<double>(step),
                     below = (loss - loss_at(-step)) / static_cast<double>(step);
        for (const double found : {(above + below) / 2, above, below})
            if (std::fabs(found - expected) < std::fabs(nearest - expected)) nearest = found;
    }
    EXPECT_NEAR(nearest, expected, 0.02 * std::fabs(expected) + 1e-3);
}

TEST_P(Lora, PlansMemoryOnlyForWhatIsTrained) {
    for (const Precision& precision : {Precision::fp32(), Precision::with_master(DType::bf16)}) {
        const TrainEngine engine(golden_.config(), golden_.options(precision), *backend_,
                                 test::single_mesh());
        std::size_t trained = 0, all = 0, leaves = 0;
        for (const OwnedLeaf& leaf : engine.store().owned()) {
            const auto elements = static_cast<std::size_t>(leaf.param.numel());
            all += elements;
            if (leaf.spec->trained) trained += elements, ++leaves;
        }
        const MemoryPlan& plan = engine.memory_plan();
        const bool bf16 = precision.master;
        const auto expect_bytes = [&](MemoryUse use, std::size_t bytes, std::size_t tensors) {
            EXPECT_GE(plan[use], bytes);
            EXPECT_LE(plan[use], bytes + tensors * Arena::alignment);
        };
        expect_bytes(MemoryUse::parameters, all * (bf16 ? 2 : 4), engine.store().owned().size());
        expect_bytes(MemoryUse::gradients, trained * 4, leaves);
        expect_bytes(MemoryUse::moments, trained * 8, 2 * leaves);
        expect_bytes(MemoryUse::master, bf16 ? trained * 4 : 0, leaves);
        EXPECT_LT(trained, all / 2);
    }
}

TEST_P(Lora, SavesWhatIsTrainedAsPeftNamesIt) {
    const auto engine = golden_.engine(*backend_, golden_.options(Precision::pure_bf16()));
    const TensorFiles files = engine->saved_tensors(true, 1 << 30);
    ASSERT_EQ(files.files().size(), 2u);
    EXPECT_EQ(files.files()[0].name, "adapter_model.safetensors");
    std::set<std::string> expected;
    for (const SafetensorsEntry& entry : golden_.file().header().entries)
        if (entry.name.starts_with("grad.")) expected.insert("base_model.model." + entry.name.substr(5));
    std::size_t parts = 0;
    for (const TensorFiles::Part& part : files.parts())
        if (part.file == "adapter_model.safetensors") {
            EXPECT_EQ(part.source.dtype(), DType::f32);
            ++parts;
        }
    EXPECT_EQ(parts, expected.size());
    for (const std::string& name : expected) EXPECT_NO_THROW(files.files()[0].layout.offset_of(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Peft, Lora,
                         ::testing::Values("llama", "llama_biases", "llama_ranks", "llama_vocabulary",
                                           "llama_tied", "llama_tied_saved", "qwen2_rslora", "qwen3",
                                           "llama_dora", "qwen2_dora", "mixtral", "mixtral_experts",
                                           "mixtral_router"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace drover
