#include <gtest/gtest.h>

#include <cstring>

#include "support/test_backend.h"
#include "train/golden_fp8.h"
#include "train/golden_lora.h"

namespace drover {
namespace {

/// With one micro-batch in an update, activations use the memory of gradients that backward writes later.
class GradientMemory : public ::testing::Test {
  protected:
    static TrainEngineOptions with_one_micro_batch(TrainEngineOptions options) {
        options.pipeline.micro_batches = 1;
        return options;
    }
    static std::size_t shared(const TrainEngine& engine) {
        return engine.memory_plan()[MemoryUse::gradients_after_activations];
    }

    /// Trains two engines whose plans differ in this alone.
    static void expect_same_training(TrainEngine& apart, TrainEngine& sharing, const Batch& batch) {
        EXPECT_EQ(shared(apart), 0u);
        EXPECT_GT(shared(sharing), 0u);
        EXPECT_LT(sharing.memory_plan().total, apart.memory_plan().total);
        for (int step = 0; step < 3; ++step) {
            const UpdateResult expected = apart.step({&batch, 1}, 1e-3),
                               got = sharing.step({&batch, 1}, 1e-3);
            EXPECT_EQ(got.loss, expected.loss) << step;
            EXPECT_EQ(got.gradient_norm, expected.gradient_norm) << step;
            EXPECT_EQ(sharing.evaluate(batch).loss_sum, apart.evaluate(batch).loss_sum) << step;
        }
        EXPECT_EQ(test::everything(sharing), test::everything(apart));
    }

    const std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

TEST_F(GradientMemory, SharingItChangesNoBit) {
    for (const char* name : {"gqa", "tied_llama3", "qwen2_windows", "qwen3_biases_padded", "mixtral_aux_top2",
                             "mixtral_padded_aux", "mixtral_experts8_top2_window", "mixtral_starved_experts"})
        for (const Precision& precision : {Precision::fp32(), Precision::pure_bf16()})
            for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::selective_mlp,
                                         Recompute::selective_attention, Recompute::full}) {
                SCOPED_TRACE(testing::Message() << name << ' ' << static_cast<int>(kind));
                const test::GoldenStep golden(std::string(name) + "_float32");
                const TrainEngineOptions options = golden.options(precision, {kind});
                const auto apart = golden.engine(*backend_, options),
                           sharing = golden.engine(*backend_, with_one_micro_batch(options));
                expect_same_training(*apart, *sharing, golden.batch());
            }
}

TEST_F(GradientMemory, SharingItChangesNoBitOfAdaptersAndFp8) {
    for (const char* name :
         {"gqa_bfloat16", "blockwise_bfloat16", "mixtral_bfloat16", "blockwise_mixtral_bfloat16"})
        for (const Recompute kind : {Recompute::none, Recompute::selective}) {
            SCOPED_TRACE(testing::Message() << name << ' ' << static_cast<int>(kind));
            if (std::string_view(name).starts_with("blockwise_mixtral") &&
                !test::multiplies_experts_in_blocks())
                continue;
            const test::GoldenFp8 golden(name);
            const TrainEngineOptions options = golden.options(Precision::pure_bf16(), {kind});
            const auto apart = golden.engine(*backend_, options),
                       sharing = golden.engine(*backend_, with_one_micro_batch(options));
            expect_same_training(*apart, *sharing, golden.batch());
        }
    for (const char* name : {"llama", "llama_dora", "mixtral", "mixtral_router", "qwen3"}) {
        SCOPED_TRACE(name);
        const test::GoldenLora golden(name);
        const TrainEngineOptions options = golden.options(Precision::fp32());
        const auto apart = golden.engine(*backend_, options),
                   sharing = golden.engine(*backend_, with_one_micro_batch(options));
        expect_same_training(*apart, *sharing, golden.batch());
    }
}

/// Many tokens, so that the activations of a block outweigh its gradients.
TEST_F(GradientMemory, IsThatOfAllBlocksButTheLastAndOfTheEmbedding) {
    const auto planned = [&](bool tied, int micro_batches) {
        ModelConfig config = ModelConfig::parse(
            R"({"model_type": "mixtral", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128,
                "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
                "num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": false})",
            "config.json");
        config.tie_word_embeddings = tied;
        return TrainEngine(config,
                           {.model = {.precision = Precision::pure_bf16(), .rows = 8, .row_length = 256},
                            .pipeline = {.micro_batches = micro_batches}},
                           *backend_, test::single_mesh())
            .memory_plan();
    };
    constexpr std::size_t hidden = 64, ffn = 128, experts = 4, vocabulary = 128, qkv = (4 + 2 + 2) * 16,
                          bytes = 2,
                          matrices = bytes * (qkv * hidden + hidden * hidden + experts * hidden +
                                              3 * experts * ffn * hidden),
                          norms = 2 * 256, embedding = bytes * vocabulary * hidden;
    for (const bool tied : {false, true}) {
        const MemoryPlan apart = planned(tied, 2), sharing = planned(tied, 1);
        const std::size_t lent = 3 * (matrices + norms) + (tied ? 0 : embedding),
                          shared = sharing[MemoryUse::gradients_after_activations];
        EXPECT_EQ(apart[MemoryUse::gradients_after_activations], 0u);
        EXPECT_EQ(apart.total - sharing.total, shared) << tied;
        EXPECT_EQ(sharing[MemoryUse::gradients] + shared, apart[MemoryUse::gradients]) << tied;
        EXPECT_LE(shared, lent) << tied;
        // What is left of a unit is smaller than any tensor of a block.
        EXPECT_GE(shared, lent * 8 / 10) << tied;
        for (const MemoryUse use : {MemoryUse::parameters, MemoryUse::moments, MemoryUse::scratch,
                                    MemoryUse::batch, MemoryUse::head})
            EXPECT_EQ(sharing[use], apart[use]) << tied;
    }
}

/// Looking for the place of a number that is not finite overwrites gradients that the update still needs.
TEST_F(GradientMemory, AnUpdateWithNumbersThatAreNotFiniteIsTheSame) {
    const test::GoldenStep golden("gqa_float32");
    const Batch batch = golden.batch();
    const auto trained = [&](TrainEngineOptions options) {
        options.max_gradient_norm = 0;
        auto engine = golden.engine(*backend_, options);
        for (const OwnedLeaf& leaf : engine->store().owned()) {
            // Layer 1 adds almost nothing in forward, and the gradient through it overflows.
            const auto fill = [&](std::string_view name, float value) {
                if (leaf.spec->name == name)
                    test::overwrite(leaf.param, 0,
                                    std::vector<float>(static_cast<std::size_t>(leaf.param.numel()), value));
            };
            fill("model.layers.1.mlp.gate_proj.weight", 0);
            fill("model.layers.1.mlp.up_proj.weight", 1e10f);
            fill("model.layers.1.mlp.down_proj.weight", 3e38f);
        }
        const UpdateResult result = engine->step({&batch, 1}, 1e-3);
        EXPECT_TRUE(result.updated);
        EXPECT_EQ(result.non_finite.value_or("").find("the gradient of model.layers.1.mlp."), 0u);
        return test::everything(*engine);
    };
    const TrainEngineOptions options = golden.options(Precision::fp32());
    const auto apart = trained(options), sharing = trained(with_one_micro_batch(options));
    ASSERT_EQ(apart.size(), sharing.size());
    for (std::size_t i = 0; i < apart.size(); ++i)
        EXPECT_EQ(std::memcmp(apart[i].data(), sharing[i].data(), apart[i].size() * sizeof(double)), 0) << i;
}

using GradientMemoryDeathTest = GradientMemory;

TEST_F(GradientMemoryDeathTest, MoreMicroBatchesThanPlannedAreABug) {
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend_, with_one_micro_batch(golden.options(Precision::fp32())));
    const std::vector<Batch> two = {golden.batch(), golden.batch()};
    EXPECT_DEATH(engine->step(two, 1e-3), "more micro-batches than planned");
}

}  // namespace
}  // namespace drover
