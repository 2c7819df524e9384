#include "model/optimizer_order.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "core/json_text.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/params.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(OptimizerOrder, IsThatOfTransformers) {
    for (const std::string run : {"llama_adamw", "llama_adafactor", "mixtral_adamw", "mistral_adamw",
                                  "qwen2_adamw", "qwen3_adafactor"}) {
        const std::string folder = "trainer_checkpoint/" + run;
        const auto config = ModelConfig::from_path(test::golden_path(folder + "/checkpoint-4"));
        std::vector<std::string> names;
        for (const NumberedParameter& parameter : optimizer_order(config)) names.push_back(parameter.name);
        const Json expected = read_json_file(test::golden_path(folder + "/whole_run.json"));
        EXPECT_EQ(names, expected.at("parameters").get<std::vector<std::string>>()) << run;
    }
}

TEST(OptimizerOrder, IsThatOfPeftsModels) {
    const auto names_of = [](const ModelConfig& config, const Adapters& adapters) {
        std::vector<std::string> names;
        for (const NumberedParameter& parameter : optimizer_order(config, adapters))
            names.push_back(parameter.name);
        return names;
    };
    const auto expected = [](const std::string& run) {
        return read_json_file(test::golden_path("trainer_checkpoint/" + run + "/whole_run.json"))
            .at("parameters")
            .get<std::vector<std::string>>();
    };
    const auto config = ModelConfig::from_path(test::golden_path("generate/llama"));
    Adapters adapters;
    for (const std::string& name : names_in_module_order(config)) {
        for (const char* target : {"embed_tokens.", "q_proj.", "down_proj.", "lm_head."})
            if (name.find(target) != std::string::npos) adapters.weights.push_back({.leaf = name, .rank = 4});
        if (name.find("norm.weight") != std::string::npos) adapters.trained_leaves.push_back(name);
    }
    EXPECT_EQ(names_of(config, adapters), expected("llama_lora"));

    const auto tied = ModelConfig::from_path(test::golden_path("generate/llama_tied"));
    Adapters lengths{.magnitudes = true};
    for (const std::string& name : names_in_module_order(tied))
        if (name.find("_proj.weight") != std::string::npos)
            lengths.weights.push_back({.leaf = name, .rank = 4});
    EXPECT_EQ(names_of(tied, lengths), expected("tied_dora"));
}

TEST(OptimizerOrder, FusedExpertsAreTheirLeavesInOrder) {
    const auto config =
        ModelConfig::from_path(test::golden_path("trainer_checkpoint/mixtral_adamw/checkpoint-4"));
    const std::string experts = "model.layers.0.block_sparse_moe.experts.";
    const auto parameters = optimizer_order(config);
    EXPECT_EQ(parameters[5].leaves, std::vector<std::string>{"model.layers.0.block_sparse_moe.gate.weight"});
    EXPECT_EQ(parameters[6].leaves,
              (std::vector{experts + "0.w1.weight", experts + "0.w3.weight", experts + "1.w1.weight",
                           experts + "1.w3.weight", experts + "2.w1.weight", experts + "2.w3.weight"}));
    EXPECT_EQ(parameters[7].leaves,
              (std::vector{experts + "0.w2.weight", experts + "1.w2.weight", experts + "2.w2.weight"}));
    const auto separate = optimizer_order(config, HfCompat::v4_43());
    EXPECT_EQ(separate.size(), 19u);  // 12 parameters, of which 2 are 9 experts' leaves
    EXPECT_EQ(separate[7].name, experts + "0.w2.weight");
    EXPECT_EQ(separate.back().name, "lm_head.weight");
}

}  // namespace
}  // namespace drover
