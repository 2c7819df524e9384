#include "model/adapters.h"

#include <gtest/gtest.h>

#include <map>

#include "model/config.h"
#include "model/params.h"
#include "support/errors.h"

namespace drover {
namespace {

ModelConfig small_llama() {
    return ModelConfig::parse(R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})",
                              "x");
}

ModelConfig small_mixtral() {
    return ModelConfig::parse(R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 32,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_local_experts": 2})",
                              "x");
}

std::map<std::string, LeafSpec> leaves_of(const ModelConfig& config, const Adapters& adapters) {
    std::map<std::string, LeafSpec> leaves;
    make_param_spec(config, {}, adapters).for_each_leaf([&](const LeafSpec& leaf) {
        leaves[leaf.name] = leaf;
    });
    return leaves;
}

TEST(Adapters, AddLeavesAndFreezeTheOthers) {
    const std::string k = "model.layers.1.self_attn.k_proj", o = "model.layers.1.self_attn.o_proj";
    const auto leaves = leaves_of(
        small_llama(), {.weights = {{.leaf = k + ".weight", .rank = 3}, {.leaf = o + ".weight", .rank = 5}},
                        .trained_leaves = {"lm_head.weight"},
                        .magnitudes = true});
    EXPECT_EQ(leaves.size(), leaves_of(small_llama(), {}).size() + 6);
    for (const auto& [name, leaf] : leaves)
        EXPECT_EQ(leaf.trained, leaf.is_adapter() || name == "lm_head.weight") << name;

    const LeafSpec &a = leaves.at(k + ".lora_A.weight"), &b = leaves.at(k + ".lora_B.weight"),
                   &m = leaves.at(k + ".lora_magnitude_vector");
    EXPECT_EQ(a.shape, (Shape{3, 32}));
    EXPECT_EQ(a.split, Split::none);
    EXPECT_EQ(a.partial_gradient, PartialGradient::always);
    EXPECT_EQ(b.shape, (Shape{16, 3}));
    EXPECT_EQ(b.split, Split::rows);
    EXPECT_EQ(b.largest_split, 2);
    EXPECT_EQ(m.shape, (Shape{16}));
    EXPECT_EQ(m.split, Split::rows);
    EXPECT_EQ(leaves.at(o + ".lora_A.weight").split, Split::columns);
    EXPECT_EQ(leaves.at(o + ".lora_B.weight").split, Split::none);
    EXPECT_EQ(leaves.at(o + ".lora_B.weight").partial_gradient, PartialGradient::always);
    EXPECT_EQ(leaves.at(o + ".lora_magnitude_vector").partial_gradient, PartialGradient::always);
}

/// PEFT's shapes: the embedding's adapter is that of the weight's transpose.
TEST(Adapters, OfTheVocabulary) {
    const auto leaves =
        leaves_of(small_llama(), {.weights = {{.leaf = "model.embed_tokens.weight", .rank = 3},
                                              {.leaf = "lm_head.weight", .rank = 5}}});
    EXPECT_EQ(leaves.size(), leaves_of(small_llama(), {}).size() + 4);
    const LeafSpec &a = leaves.at("model.embed_tokens.lora_embedding_A"),
                   &b = leaves.at("model.embed_tokens.lora_embedding_B");
    EXPECT_EQ(a.shape, (Shape{3, 64}));
    EXPECT_EQ(a.split, Split::columns);
    EXPECT_EQ(a.initial, Initial::zeros);
    EXPECT_EQ(b.shape, (Shape{32, 3}));
    EXPECT_EQ(b.split, Split::none);
    EXPECT_EQ(b.partial_gradient, PartialGradient::always);
    EXPECT_EQ(b.initial, Initial::standard_normal);
    EXPECT_EQ(leaves.at("lm_head.lora_A.weight").shape, (Shape{5, 32}));
    EXPECT_EQ(leaves.at("lm_head.lora_A.weight").partial_gradient, PartialGradient::always);
    EXPECT_EQ(leaves.at("lm_head.lora_B.weight").shape, (Shape{64, 5}));
    EXPECT_EQ(leaves.at("lm_head.lora_B.weight").split, Split::rows);
}

TEST(Adapters, RefuseWhatTheyCannotAdapt) {
    const auto refused = [](const ModelConfig& config, const Adapters& adapters,
                            std::initializer_list<std::string_view> words) {
        test::expect_error([&] { make_param_spec(config, {}, adapters); }, words);
    };
    for (const std::string leaf : {"model.embed_tokens.weight", "lm_head.weight"})
        refused(small_llama(), {.weights = {{.leaf = leaf, .rank = 2}}, .magnitudes = true},
                {"LoRA cannot adapt " + leaf + " with DoRA"});
    refused(small_llama(), {.weights = {{.leaf = "model.norm.weight", .rank = 2}}},
            {"LoRA cannot adapt model.norm.weight"});
    refused(small_llama(), {.weights = {}, .trained_leaves = {"no.weight"}}, {"no weight no.weight"});
    refused(small_llama(),
            {.weights = {}, .trained_leaves = {"model.layers.0.self_attn.q_proj.bias"}, .magnitudes = true},
            {"q_proj.bias", "DoRA"});
    const std::string moe = "model.layers.0.block_sparse_moe.";
    refused(small_mixtral(), {.weights = {{.leaf = moe + "gate.weight", .rank = 2}}, .magnitudes = true},
            {"gate.weight with DoRA"});
    refused(small_mixtral(), {.weights = {{.leaf = moe + "experts.0.w1.weight", .rank = 2}}},
            {"experts.1.w1.weight", "all experts"});
    Adapters all;
    for (const char* expert : {"0", "1"})
        all.weights.push_back({.leaf = moe + "experts." + expert + ".w2.weight", .rank = 2});
    EXPECT_EQ(leaves_of(small_mixtral(), all).size(), leaves_of(small_mixtral(), {}).size() + 4);
    all.magnitudes = true;
    refused(small_mixtral(), all, {"experts.0.w2.weight with DoRA"});
    all.magnitudes = false;
    all.weights[1].rank = 3;
    refused(small_mixtral(), all, {"experts.1.w2.weight"});
}

}  // namespace
}  // namespace drover
