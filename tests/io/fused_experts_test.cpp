#include "io/fused_experts.h"

#include <gtest/gtest.h>

#include "io/model_folder.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(FusedExperts, AppearUnderTheirPublishedNames) {
    const test::TemporaryFolder folder;
    constexpr std::int64_t experts = 3, ffn = 2, hidden = 5;
    std::vector<float> gate_up(experts * 2 * ffn * hidden), down(experts * hidden * ffn),
        router(experts * hidden);
    for (std::size_t i = 0; i < gate_up.size(); ++i) gate_up[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < down.size(); ++i) down[i] = static_cast<float>(1000 + i);
    write_safetensors(
        folder / "model.safetensors",
        {{"model.layers.0.mlp.experts.gate_up_proj", Tensor::of(gate_up.data(), {experts, 2 * ffn, hidden})},
         {"model.layers.0.mlp.experts.down_proj", Tensor::of(down.data(), {experts, hidden, ffn})},
         {"model.layers.0.mlp.gate.weight", Tensor::of(router.data(), {experts, hidden})}});
    const ModelWeights weights(folder.path());
    EXPECT_EQ(weights.names().size(), 1u + 3u * experts);
    EXPECT_TRUE(weights.find("model.layers.0.block_sparse_moe.gate.weight"));
    EXPECT_FALSE(weights.find("model.layers.0.mlp.gate.weight"));

    const std::string expert = "model.layers.0.block_sparse_moe.experts.1.";
    const Tensor w1 = weights.find(expert + "w1.weight"), w3 = weights.find(expert + "w3.weight"),
                 w2 = weights.find(expert + "w2.weight");
    EXPECT_EQ(w1.shape(), (Shape{ffn, hidden}));
    EXPECT_EQ(w2.shape(), (Shape{hidden, ffn}));
    EXPECT_EQ(test::values(w1).front(), 2 * ffn * hidden);
    EXPECT_EQ(test::values(w3).front(), 3 * ffn * hidden);
    EXPECT_EQ(test::values(w2).front(), 1000 + hidden * ffn);
    EXPECT_EQ(test::values(w2).back(), 1000 + 2 * hidden * ffn - 1);
}

TEST(FusedExperts, DenseModelsAreLeftAlone) {
    const test::TemporaryFolder folder;
    std::vector<float> gate(6);
    write_safetensors(folder / "model.safetensors",
                      {{"model.layers.0.mlp.gate.weight", Tensor::of(gate.data(), {2, 3})},
                       {"model.layers.0.mlp.experts.gate_up_proj", Tensor::of(gate.data(), {2, 3})}});
    EXPECT_EQ(ModelWeights(folder.path()).names().size(), 2u);
    EXPECT_TRUE(ModelWeights(folder.path()).find("model.layers.0.mlp.gate.weight"));
}

}  // namespace
}  // namespace drover
