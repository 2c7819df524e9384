#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/golden_fp8.h"

namespace drover {
namespace {

/// A step of Mixtral in emulated FP8 (tools/oracle/fp8_experts.py).
class Fp8Experts : public ::testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        if (recipe() == Fp8Recipe::blockwise && !test::multiplies_experts_in_blocks())
            GTEST_SKIP() << "only code for Hopper multiplies experts in blocks";
    }

    static Fp8Recipe recipe() { return test::GoldenFp8::recipe_of(GetParam()); }

    test::GoldenStep golden(const std::string& dtype) const {
        return test::GoldenStep("../fp8/" + std::string(GetParam()) + dtype);
    }

    static std::unique_ptr<TrainEngine> engine(const test::GoldenStep& golden, Backend& backend,
                                               const Precision& precision, const RecomputePolicy& policy = {},
                                               MoeMode mode = MoeMode::grouped) {
        TrainEngineOptions options = golden.options(precision, policy, mode);
        options.model.fp8 = recipe();
        return golden.engine(backend, options);
    }

    static std::vector<std::vector<double>> gradients_of(const TrainEngine& engine) {
        std::vector<std::vector<double>> gradients;
        for (const OwnedLeaf& leaf : engine.store().owned()) gradients.push_back(test::values(leaf.gradient));
        return gradients;
    }

    static bool is_zero(const Tensor& tensor) {
        for (const double value : test::values(tensor))
            if (value != 0) return false;
        return true;
    }

    /// Where many numbers may have moved over edges of FP8. An expert has few tokens, so each of them counts.
    static double least_cosine(const OwnedLeaf& leaf) {
        return leaf.spec->name.find("experts") != std::string::npos ? 0.9 : 0.98;
    }

    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

/// A sum that is rounded otherwise, on another processor, may move a number over an edge of FP8, by 1/16 of
/// it. One such number moves a gradient by little; wrong scales, or a product without FP8, by far more. A
/// GPU's own sums have fewer bits, and move many.
TEST_P(Fp8Experts, Float32LossAndEveryGradient) {
    const test::GoldenStep golden = Fp8Experts::golden("_float32");
    const std::vector<Batch> batches = {golden.batch()};
    const auto engine = Fp8Experts::engine(golden, *backend_, Precision::fp32());
    const bool is_cpu = !test::tests_use_cuda();
    EXPECT_NEAR(engine->accumulate_gradients(batches).loss, golden.file().tensor("loss").data<float>()[0],
                is_cpu ? 1e-4 : 5e-3);
    const auto plain = golden.engine(*backend_, Precision::fp32());
    plain->accumulate_gradients(batches);
    for (std::size_t i = 0; i < engine->store().owned().size(); ++i) {
        const OwnedLeaf& leaf = engine->store().owned()[i];
        const Tensor expected = golden.file().tensor("grad." + leaf.spec->name);
        if (is_cpu)
            EXPECT_LE(test::relative_error(leaf.gradient, expected), 2e-2) << leaf.spec->name;
        else
            EXPECT_GE(test::cosine(leaf.gradient, expected), least_cosine(leaf)) << leaf.spec->name;
        // The comparison above would show a matrix that is multiplied without FP8.
        if (leaf.spec->name.find("experts") != std::string::npos && !is_zero(expected)) {
            EXPECT_GE(test::relative_error(plain->store().owned()[i].gradient, expected), 4e-2)
                << leaf.spec->name;
        }
    }
}

/// Rounding to bf16 moves many numbers over edges of FP8, so the gradients agree as far as FP8 itself does.
TEST_P(Fp8Experts, Bfloat16LossAndEveryGradient) {
    const test::GoldenStep golden = Fp8Experts::golden("_bfloat16");
    for (const Precision& precision : {Precision::pure_bf16(), Precision::with_master(DType::bf16)}) {
        const auto engine = Fp8Experts::engine(golden, *backend_, precision);
        const std::vector<Batch> batches = {golden.batch()};
        EXPECT_NEAR(engine->accumulate_gradients(batches).loss, golden.file().tensor("loss").data<float>()[0],
                    1e-2);
        for (const OwnedLeaf& leaf : engine->store().owned())
            EXPECT_GE(test::cosine(leaf.gradient, golden.file().tensor("grad." + leaf.spec->name)),
                      least_cosine(leaf))
                << leaf.spec->name << ", gradients in " << name_of(precision.gradients);
    }
}

TEST_P(Fp8Experts, EveryRecomputePolicyGivesTheSameBits) {
    for (const char* dtype : {"_float32", "_bfloat16"}) {
        const test::GoldenStep golden = Fp8Experts::golden(dtype);
        const Precision precision =
            dtype == std::string("_float32") ? Precision::fp32() : Precision::with_master(DType::bf16);
        const auto plain = Fp8Experts::engine(golden, *backend_, precision);
        const std::vector<Batch> batches = {golden.batch(), golden.batch()};
        const UpdateResult expected = plain->accumulate_gradients(batches);
        for (const RecomputePolicy policy :
             {RecomputePolicy{Recompute::selective}, RecomputePolicy{Recompute::selective_mlp},
              RecomputePolicy{Recompute::selective_attention},
              RecomputePolicy{Recompute::selective_attention, 1}, RecomputePolicy{Recompute::full},
              RecomputePolicy{Recompute::full, 1}}) {
            const auto engine = Fp8Experts::engine(golden, *backend_, precision, policy);
            EXPECT_EQ(engine->accumulate_gradients(batches).loss, expected.loss);
            EXPECT_TRUE(gradients_of(*engine) == gradients_of(*plain));
        }
    }
}

/// Maxima belong to a micro-batch: what came before it has no effect.
TEST_P(Fp8Experts, AnEarlierMicroBatchHasNoEffect) {
    const test::GoldenStep golden = Fp8Experts::golden("_float32");
    const auto fresh = Fp8Experts::engine(golden, *backend_, Precision::fp32()),
               used = Fp8Experts::engine(golden, *backend_, Precision::fp32());
    Batch other = golden.batch();
    std::fill(other.ids.begin(), other.ids.end(), 5);
    const std::vector<Batch> others = {other}, batches = {golden.batch()};
    used->accumulate_gradients(others);
    EXPECT_EQ(used->accumulate_gradients(batches).loss, fresh->accumulate_gradients(batches).loss);
    EXPECT_TRUE(gradients_of(*used) == gradients_of(*fresh));
}

/// Copies of the weights make no difference. Where every expert is given every token, scales are those of
/// other rows, so results agree as far as FP8 does.
TEST_P(Fp8Experts, ModesGiveTheSameGradients) {
    const test::GoldenStep golden = Fp8Experts::golden("_float32");
    const std::vector<Batch> batches = {golden.batch()};
    const auto grouped = Fp8Experts::engine(golden, *backend_, Precision::fp32());
    const double loss = grouped->accumulate_gradients(batches).loss;
    const auto stacked = Fp8Experts::engine(golden, *backend_, Precision::fp32(), {}, MoeMode::stacked);
    EXPECT_EQ(stacked->accumulate_gradients(batches).loss, loss);
    EXPECT_TRUE(gradients_of(*stacked) == gradients_of(*grouped));
    const auto all = Fp8Experts::engine(golden, *backend_, Precision::fp32(), {}, MoeMode::all_tokens);
    EXPECT_NEAR(all->accumulate_gradients(batches).loss, loss, 1e-2);
    for (std::size_t i = 0; i < all->store().owned().size(); ++i) {
        const OwnedLeaf& leaf = all->store().owned()[i];
        EXPECT_GE(test::cosine(leaf.gradient, grouped->store().owned()[i].gradient), least_cosine(leaf))
            << leaf.spec->name;
    }
}

/// The frozen weights are multiplied in FP8, the adapters are not.
TEST_P(Fp8Experts, TrainsAdaptersOfExperts) {
    const test::GoldenStep golden = Fp8Experts::golden("_bfloat16");
    TrainEngineOptions options = golden.options(Precision::with_master(DType::bf16));
    for (int layer = 0; layer < 2; ++layer)
        for (std::int64_t expert = 0; expert < golden.config().moe.experts; ++expert)
            for (const char* leaf : {"w1", "w2", "w3"})
                options.model.adapters.weights.push_back(
                    {.leaf = "model.layers." + std::to_string(layer) + ".block_sparse_moe.experts." +
                             std::to_string(expert) + "." + leaf + ".weight",
                     .rank = 4,
                     .scale = 2});
    const auto make = [&](Fp8Recipe recipe, Recompute recompute) {
        options.model.fp8 = recipe;
        options.model.recompute = {recompute};
        auto engine = golden.engine(*backend_, options);
        engine->initialize_adapters(2);
        return engine;
    };
    const auto plain = make(Fp8Recipe::none, Recompute::none), engine = make(recipe(), Recompute::none),
               recomputing = make(recipe(), Recompute::full);
    const auto frozen = [&] {
        std::vector<std::vector<double>> weights;
        for (const OwnedLeaf& leaf : engine->store().owned())
            if (!leaf.spec->trained) weights.push_back(test::values(leaf.param));
        return weights;
    };
    const auto before = frozen();
    const std::vector<Batch> batches = {golden.batch()};
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
        losses.push_back(engine->step(batches, 2e-2).loss);
        EXPECT_NEAR(losses.back(), plain->step(batches, 2e-2).loss, 0.05 * losses.back() + 0.03);
        EXPECT_EQ(losses.back(), recomputing->step(batches, 2e-2).loss);
    }
    EXPECT_LT(losses.back(), losses.front() - 0.1);
    EXPECT_TRUE(frozen() == before);
    EXPECT_TRUE(test::everything(*engine) == test::everything(*recomputing));
}

INSTANTIATE_TEST_SUITE_P(Mixtral, Fp8Experts,
                         ::testing::Values("mixtral", "mixtral_starved", "blockwise_mixtral"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace drover
