#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "backend/backend.h"
#include "backend/operation_profile.h"
#include "support/test_backend.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

/// The CPU backend, counting the requested allocations.
class MemoryPlanTest : public ::testing::Test {
  protected:
    ModelConfig config_ = ModelConfig::parse(
        R"({"vocab_size": 101, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2})",
        "x");
    std::unique_ptr<Backend> backend_ = test::make_test_backend();

    MemoryPlan plan(const Precision& precision, const RecomputePolicy& recompute, std::int64_t rows = 2,
                    std::int64_t row_length = 24) {
        return TrainEngine(config_,
                           {.model = {.precision = precision,
                                      .recompute = recompute,
                                      .rows = rows,
                                      .row_length = row_length},
                            .max_gradient_norm = 1,
                            .compat = {}},
                           *backend_, test::single_mesh())
            .memory_plan();
    }
};

std::size_t rounded_up(std::size_t bytes) {
    return (bytes + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
}

TEST_F(MemoryPlanTest, PlanIsTheAllocationInEveryConfiguration) {
    // allocate() itself ends the program if a byte differs; it remains to show that the plan adds up.
    for (const Precision& precision :
         {Precision::fp32(), Precision::pure_bf16(), Precision::with_master(DType::bf16)})
        for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::selective_mlp,
                                     Recompute::selective_attention, Recompute::full})
            for (const std::int64_t blocks : {std::int64_t{2}, INT64_MAX})
                for (const int micro_batches : {1, 2}) {
                    TrainEngine engine(config_,
                                       {.model = {.precision = precision,
                                                  .recompute = {kind, blocks},
                                                  .rows = 3,
                                                  .row_length = 17},
                                        .max_gradient_norm = 1,
                                        .compat = {},
                                        .pipeline = {.micro_batches = micro_batches}},
                                       *backend_, test::single_mesh());
                    engine.allocate();
                    std::size_t sum = 0;
                    for (const std::size_t bytes : engine.memory_plan().by_use) sum += bytes;
                    EXPECT_EQ(sum, engine.memory_plan().total);
                }
}

TEST_F(MemoryPlanTest, ParametersGradientsAndMomentsByHand) {
    const std::size_t hidden = 48, ffn = 64, vocab = 101, qkv = (4 + 2 + 2) * 12, query = 48;
    const auto matrices = [&](std::size_t bytes) {
        const std::size_t block = rounded_up(qkv * hidden * bytes) + rounded_up(hidden * query * bytes) +
                                  rounded_up(2 * ffn * hidden * bytes) + rounded_up(hidden * ffn * bytes) +
                                  2 * rounded_up(hidden * bytes);
        return 3 * block + 2 * rounded_up(vocab * hidden * bytes) + rounded_up(hidden * bytes);
    };
    const MemoryPlan fp32 = plan(Precision::fp32(), {});
    EXPECT_EQ(fp32[MemoryUse::parameters], matrices(4));
    EXPECT_EQ(fp32[MemoryUse::gradients], matrices(4));
    EXPECT_EQ(fp32[MemoryUse::master], 0u);
    const MemoryPlan pure = plan(Precision::pure_bf16(), {});
    EXPECT_EQ(pure[MemoryUse::parameters], matrices(2));
    EXPECT_EQ(pure[MemoryUse::gradients], matrices(2));
    const MemoryPlan mixed = plan(Precision::with_master(DType::bf16), {});
    EXPECT_EQ(mixed[MemoryUse::parameters], matrices(2));
    EXPECT_EQ(mixed[MemoryUse::gradients], matrices(4));
    EXPECT_GT(mixed[MemoryUse::master], 0u);
    EXPECT_EQ(mixed[MemoryUse::moments], 2 * mixed[MemoryUse::master]);
}

TEST_F(MemoryPlanTest, EachPolicyKeepsLessThanTheOneBefore) {
    // Many tokens, so that activations outweigh the buffers that the policies share.
    const auto kept = [&](const RecomputePolicy& policy) {
        return plan(Precision::fp32(), policy, 8, 256).total;
    };
    EXPECT_LT(kept({Recompute::selective}), kept({Recompute::none}));
    EXPECT_LT(kept({Recompute::selective_mlp}), kept({Recompute::selective}));
    EXPECT_LT(kept({Recompute::selective_attention}), kept({Recompute::selective_mlp}));
    EXPECT_LT(kept({Recompute::full}), kept({Recompute::selective_attention}));
    EXPECT_LT(kept({Recompute::full}), kept({Recompute::full, 1}));
}

TEST_F(MemoryPlanTest, SelectiveAttentionKeepsWhatAttentionGaveAndItsStatistics) {
    const std::size_t tokens = 8 * 256, heads = 4, head_dim = 12, blocks = 3;
    const MemoryPlan kept = plan(Precision::pure_bf16(), {Recompute::selective_attention}, 8, 256),
                     full = plan(Precision::pure_bf16(), {Recompute::full}, 8, 256);
    EXPECT_EQ(kept[MemoryUse::attention_activations], blocks * tokens * (heads * head_dim * 2 + heads * 4));
    EXPECT_EQ(full[MemoryUse::attention_activations], 0u);
    for (const MemoryUse use : {MemoryUse::residual_stream, MemoryUse::mlp_activations})
        EXPECT_EQ(kept[use], full[use]);
}

/// What the policy is for: the products run again, attention does not.
TEST_F(MemoryPlanTest, SelectiveAttentionComputesAttentionOnce) {
    const auto calls = [&](Recompute kind) {
        TrainEngine engine(config_,
                           {.model = {.recompute = {kind}, .rows = 2, .row_length = 24},
                            .max_gradient_norm = 1,
                            .compat = {}},
                           *backend_, test::single_mesh());
        engine.allocate();
        engine.initialize_weights(1);
        const OperationProfile profile(*backend_);
        engine.step(std::vector<Batch>{Batch::of_shape(2, 24)}, 0);
        std::map<std::string_view, std::int64_t> counts;
        for (const OperationTotal& total : profile.totals()) counts[total.cost.name] += total.calls;
        return counts;
    };
    auto none = calls(Recompute::none), kept = calls(Recompute::selective_attention),
         full = calls(Recompute::full);
    constexpr std::int64_t blocks = 3, recomputed_products = 3;  // q‖k‖v, attention's output, gate‖up
    EXPECT_EQ(none["attention"], blocks);
    EXPECT_EQ(kept["attention"], blocks);
    EXPECT_EQ(full["attention"], 2 * blocks);
    EXPECT_EQ(kept["gemm forward"], none["gemm forward"] + recomputed_products * blocks);
    EXPECT_EQ(full["gemm forward"], kept["gemm forward"]);
}

}  // namespace
}  // namespace drover
