#include "peft/target_modules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "peft/adapter_cases.h"
#include "support/errors.h"

namespace drover {
namespace {

PeftConfig config_of(Json values) {
    values["peft_type"] = "LORA";
    return PeftConfig::of(values, "adapter_config.json");
}

ModelConfig model_of(const std::string& name) {
    return ModelConfig::from_path(test::golden_path("generate/" + name));
}

Adapters resolved(const std::string& model, const Json& values) {
    return resolve(config_of(values), model_of(model), "adapter_config.json");
}

TEST(TargetModules, AreThoseThatPeftChooses) {
    for (const Json& item : read_json_file(test::golden_path("peft/targets.json"))) {
        SCOPED_TRACE(item.at("config").dump());
        const ModelConfig model = model_of(item.at("base").get<std::string>());
        if (item.contains("error")) {
            const bool none = item.at("error") == "NoMatchingPeftModuleError";
            const std::string error =
                test::error_of([&] { resolve(config_of(item.at("config")), model, "f"); });
            EXPECT_TRUE(error.starts_with("f: target_modules ")) << error;
            EXPECT_TRUE(error.find(none ? "no module of the model" : "neither a linear layer") != error.npos)
                << error;
            continue;
        }
        const Adapters adapters = resolve(config_of(item.at("config")), model, "f");
        Json adapted = Json::object();
        for (const AdaptedWeight& weight : adapters.weights)
            adapted[weight.leaf.substr(0, weight.leaf.rfind('.'))] = {weight.rank, weight.scale};
        EXPECT_EQ(nlohmann::json(adapted), nlohmann::json(item.at("adapted")));
        std::vector<std::string> whole = adapters.trained_leaves;
        std::ranges::sort(whole);
        EXPECT_EQ(whole, item.at("whole").get<std::vector<std::string>>());
        const TrainedCounts counts = count_trained(adapters, model);
        EXPECT_EQ(counts.trained, item.at("trained").get<std::int64_t>());
        EXPECT_EQ(counts.all, item.at("all").get<std::int64_t>());
    }
}

TEST(TargetModules, AreInModuleOrder) {
    std::vector<std::string> names;
    for (const AdaptedWeight& weight : resolved("llama", {{"target_modules", {"up_proj", "q_proj"}}}).weights)
        names.push_back(weight.leaf);
    EXPECT_EQ(names, (std::vector<std::string>{
                         "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight",
                         "model.layers.1.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight"}));
}

TEST(TargetModules, AllLinearOfMixtralAreRouterAndExperts) {
    // Per layer: q, k, v, o, the router, and three matrices of each of four experts.
    EXPECT_EQ(resolved("mixtral", {{"target_modules", "all-linear"}}).weights.size(), 2 * (4 + 1 + 12));
    EXPECT_EQ(
        resolve_adapter(config_of({{"target_modules", "all-linear"}}), model_of("mixtral"), "f").target_names,
        (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate", "w1", "w2", "w3"}));
}

TEST(TargetModules, SayWhatThereIsWhenNothingMatches) {
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", {"c_attn"}}});
        },
        {"[\"c_attn\"] name no module",
         "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
         "down_proj, lm_head"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", "q_proj"}});
        },
        {"\"q_proj\" matches no module",
         "a regular expression for the whole name, such as "
         ".*\\.q_proj"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", "q_proj,v_proj"}});
        },
        {"\"q_proj,v_proj\" matches no module", "separated by spaces, not commas. There are q_proj"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", {"q_proj"}}, {"layers_to_transform", {9}}});
        },
        {"in the layers 9"});
    test::expect_error(
        [] {
            resolved("llama", {{"modules_to_save", {"score"}}});
        },
        {"modules_to_save [\"score\"] name no module"});
}

TEST(TargetModules, RefuseWhatHasNoAdapters) {
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", {"embed_tokens"}}, {"use_dora", true}});
        },
        {"the embedding model.embed_tokens, for which there is no DoRA here"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", {"q_proj", "norm"}}});
        },
        {"model.norm, which is neither a linear layer nor an embedding"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", ".*mlp"}});
        },
        {"model.layers.0.mlp, which is neither a linear layer nor an embedding"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_modules", "(q_proj"}});
        },
        {"adapter_config.json: target_modules", "\"(q_proj\" is not a regular expression"});
    test::expect_error(
        [] {
            resolved("mixtral", {{"target_parameters", {"down_proj"}}});
        },
        {"cannot be trained here", "name w1, w2 and w3"});
    test::expect_error(
        [] {
            resolved("llama", {{"target_parameters", {"gate_up_proj"}}});
        },
        {"name no weight of the model"});
}

TEST(TargetModules, AParameterOfALinearLayerIsItsWeight) {
    const Adapters adapters =
        resolved("mixtral", {{"target_modules", {"q_proj"}}, {"target_parameters", {"gate.weight"}}});
    ASSERT_EQ(adapters.weights.size(), 4);
    EXPECT_EQ(adapters.weights[1].leaf, "model.layers.0.block_sparse_moe.gate.weight");
}

}  // namespace
}  // namespace drover
