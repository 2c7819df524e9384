#include "model/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/json_text.h"
#include "model/params.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

std::filesystem::path example(const char* name) {
    return std::filesystem::path(DROVER_SOURCE_DIR) / "examples" / "configs" / name;
}

TEST(Config, DefaultsAreLlamas) {
    const ModelConfig config = ModelConfig::parse(R"({"model_type": "llama"})", "x");
    EXPECT_EQ(config.vocab_size, 32000);
    EXPECT_EQ(config.num_key_value_heads, 32);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_EQ(config.max_position_embeddings, 2048);
    EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.pad_token_id, -1);
    EXPECT_EQ(config.eos_token_ids, std::vector<std::int64_t>{2});
    EXPECT_FALSE(config.dtype.has_value());
}

TEST(Config, ParameterCountsOfTheReleasedModels) {
    const auto count = [](const char* name) {
        return make_param_spec(ModelConfig::from_path(example(name))).parameter_count();
    };
    EXPECT_EQ(count("llama2-7b.json"), 6'738'415'616);
    EXPECT_EQ(count("llama2-13b.json"), 13'015'864'320);
    EXPECT_EQ(count("llama2-70b.json"), 68'976'648'192);
    EXPECT_EQ(count("llama3-8b.json"), 8'030'261'248);
    EXPECT_EQ(count("llama3.1-70b.json"), 70'553'706'496);
    EXPECT_EQ(count("llama3.2-1b.json"), 1'235'814'400);
    EXPECT_EQ(count("llama-134m.json"), 134'105'856);
    EXPECT_EQ(count("mixtral-8x7b.json"), 46'702'792'704);
    EXPECT_EQ(count("mistral-7b-v0.1.json"), 7'241'732'096);
    EXPECT_EQ(count("mistral-7b-v0.3.json"), 7'248'023'552);
    EXPECT_EQ(count("qwen2.5-0.5b.json"), 494'032'768);
    EXPECT_EQ(count("qwen2.5-1.5b.json"), 1'543'714'304);
    EXPECT_EQ(count("qwen2.5-3b.json"), 3'085'938'688);
    EXPECT_EQ(count("qwen2.5-7b.json"), 7'615'616'512);
    EXPECT_EQ(count("qwen2.5-14b.json"), 14'770'033'664);
    EXPECT_EQ(count("qwen2.5-32b.json"), 32'763'876'352);
    EXPECT_EQ(count("qwen2.5-72b.json"), 72'706'203'648);
    EXPECT_EQ(count("qwen3-0.6b.json"), 596'049'920);
    EXPECT_EQ(count("qwen3-1.7b.json"), 1'720'574'976);
    EXPECT_EQ(count("qwen3-4b.json"), 4'022'468'096);
    EXPECT_EQ(count("qwen3-8b.json"), 8'190'735'360);
    EXPECT_EQ(count("qwen3-14b.json"), 14'768'307'200);
    EXPECT_EQ(count("qwen3-32b.json"), 32'762'123'264);
}

TEST(Config, DefaultsOfMixtral) {
    const ModelConfig config =
        ModelConfig::parse(R"({"model_type": "mixtral", "sliding_window": null})", "x");
    EXPECT_TRUE(config.has_experts());
    EXPECT_EQ(config.moe.experts, 8);
    EXPECT_EQ(config.moe.chosen, 2);
    EXPECT_EQ(config.intermediate_size, 14336);
    EXPECT_EQ(config.num_key_value_heads, 8);
    EXPECT_EQ(config.sliding_window, 0);
    EXPECT_DOUBLE_EQ(config.rope.theta, 1e6);
    EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-5);
    EXPECT_FALSE(config.moe.balance_loss);
    EXPECT_NE(config.saved_text(DType::f32).find("MixtralForCausalLM"), std::string::npos);
}

TEST(Config, DefaultsOfMistral) {
    const ModelConfig config = ModelConfig::parse(R"({"model_type": "mistral"})", "x");
    EXPECT_EQ(config.num_key_value_heads, 8);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_EQ(config.sliding_window, 4096);
    EXPECT_EQ(config.window_of(31), 4096);
    EXPECT_EQ(ModelConfig::parse(R"({"model_type": "mistral", "sliding_window": null})", "x").sliding_window,
              0);
}

TEST(Config, QwenHasItsBiasesAndHeadNorms) {
    const ModelConfig two = ModelConfig::parse(R"({"model_type": "qwen2", "hidden_size": 2048})", "x");
    EXPECT_TRUE(two.qkv_bias);
    EXPECT_FALSE(two.attention_output_bias);
    EXPECT_FALSE(two.head_norms);
    EXPECT_EQ(two.head_dim, 64);
    EXPECT_EQ(two.bos_token_id, -1);
    EXPECT_TRUE(two.eos_token_ids.empty());
    const ModelConfig three = ModelConfig::parse(R"({"model_type": "qwen3", "hidden_size": 2048})", "x");
    EXPECT_FALSE(three.qkv_bias);
    EXPECT_TRUE(three.head_norms);
    EXPECT_EQ(three.head_dim, 128);
}

TEST(Config, WindowsOfSomeLayers) {
    const auto windows = [](const std::string& keys) {
        const ModelConfig config = ModelConfig::parse(
            R"({"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 9)" + keys + "}", "x");
        return std::vector{config.window_of(0), config.window_of(1), config.window_of(2)};
    };
    using Windows = std::vector<std::int64_t>;
    EXPECT_EQ(windows(""), (Windows{0, 0, 0}));
    EXPECT_EQ(windows(R"(, "use_sliding_window": true)"), (Windows{0, 0, 0}));
    EXPECT_EQ(windows(R"(, "use_sliding_window": true, "max_window_layers": 1)"), (Windows{0, 9, 9}));
    EXPECT_EQ(windows(R"(, "use_sliding_window": true,
                          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])"),
              (Windows{9, 0, 9}));
}

TEST(Config, BothStylesOfRopeKeys) {
    const auto v4 = ModelConfig::parse(
        R"({"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2}})", "x");
    const auto v5 = ModelConfig::parse(
        R"({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0}})", "x");
    for (const ModelConfig& config : {v4, v5}) {
        EXPECT_EQ(config.rope.type, RopeConfig::Type::linear);
        EXPECT_DOUBLE_EQ(config.rope.theta, 500000);
        EXPECT_DOUBLE_EQ(config.rope.factor, 2);
    }
}

TEST(Config, UnknownKeysAreWrittenBack) {
    const auto config =
        ModelConfig::parse(R"({"hidden_size": 64, "my_key": {"b": [1, null], "a": 1e-05}})", "x");
    const Json saved = parse_json(config.saved_text(DType::bf16), "saved");
    EXPECT_EQ(sorted_json_text(saved.at("my_key"), 0), sorted_json_text(config.json.at("my_key"), 0));
    EXPECT_EQ(saved.at("dtype"), "bfloat16");
    EXPECT_EQ(saved.at("architectures"), Json::array({"LlamaForCausalLM"}));
    EXPECT_EQ(config.saved_text(DType::bf16).back(), '\n');
}

TEST(Config, TokenIdsMayBeLists) {
    const auto config =
        ModelConfig::parse(R"({"eos_token_id": [5, 7], "pad_token_id": 3, "bos_token_id": null})", "x");
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{5, 7}));
    EXPECT_EQ(config.pad_token_id, 3);
    EXPECT_EQ(config.bos_token_id, -1);
    EXPECT_EQ(ModelConfig::parse(R"({"eos_token_id": null})", "x").eos_token_ids, std::vector<std::int64_t>{})
        << "null is none, not the default";
    EXPECT_EQ(ModelConfig::parse("{}", "x").eos_token_ids, std::vector<std::int64_t>{2});
}

TEST(Config, AbsurdOnesAreRefusedByName) {
    const auto expect = [](std::string_view text, std::string_view part) {
        SCOPED_TRACE(text);
        test::expect_error([&] { ModelConfig::parse(text, "config.json"); }, {"config.json", part});
    };
    expect("[1]", "JSON object");
    expect("{", "not valid JSON");
    expect(R"({"model_type": "bert"})",
           "model_type is \"bert\". Models of type llama, mistral, mixtral, qwen2 and qwen3 can be trained.");
    expect(R"({"model_type": "qwen"})", "Did you mean \"qwen2\"?");
    expect(R"({"model_type": "qwen2", "layer_types": ["full_attention"]})", "layer_types is not a list with");
    expect(R"({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["sideways"]})",
           "layer_types holds \"sideways\"");
    expect(R"({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
           "layer_types holds \"sliding_attention\", but there is no window");
    expect(R"({"model_type": "qwen2", "use_sliding_window": 1})", "use_sliding_window is 1");
    expect(R"({"model_type": "mistral", "sliding_window": 0})", "sliding_window is 0");
    expect(R"({"num_hidden_layers": 0})", "num_hidden_layers is 0");
    expect(R"({"num_hidden_layers": -1})", "num_hidden_layers is -1");
    expect(R"({"hidden_size": 0})", "hidden_size is 0");
    expect(R"({"hidden_size": "big"})", "hidden_size is \"big\"");
    expect(R"({"hidden_size": 64.5})", "hidden_size is 64.5");
    expect(R"({"hidden_size": 1e30})", "hidden_size is 1e+30");
    expect(R"({"vocab_size": 99999999999999999999})", "vocab_size is");
    expect(R"({"hidden_size": 64, "num_attention_heads": 5})", "does not divide hidden_size");
    expect(R"({"num_attention_heads": 32, "num_key_value_heads": 5})", "does not divide num_attention_heads");
    expect(R"({"num_attention_heads": 8, "num_key_value_heads": 16})",
           "num_key_value_heads is 16, more than");
    expect(R"({"head_dim": 15})", "head_dim is 15, an odd number");
    expect(R"({"head_dim": 100000})", "head_dim is 100000");
    expect(R"({"vocab_size": 100, "pad_token_id": 100})", "pad_token_id is 100, but vocab_size is only 100");
    expect(R"({"vocab_size": 100, "eos_token_id": [2, 128001]})", "eos_token_id is 128001");
    expect(R"({"eos_token_id": []})", "eos_token_id is an empty list");
    expect(R"({"hidden_act": "gelu"})", "hidden_act is \"gelu\"");
    expect(R"({"attention_dropout": 0.1})", "attention_dropout");
    expect(R"({"rms_norm_eps": 0})", "rms_norm_eps is 0");
    expect(R"({"tie_word_embeddings": "yes"})", "tie_word_embeddings is \"yes\"");
    expect(R"({"torch_dtype": "int8"})", "torch_dtype is \"int8\"");
    expect(R"({"model_type": "mixtral", "num_local_experts": 0})", "num_local_experts is 0");
    expect(R"({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5})",
           "num_experts_per_tok is 5");
    expect(R"({"model_type": "mixtral", "router_jitter_noise": -0.1})", "router_jitter_noise is -0.1");
    expect(R"({"model_type": "mixtral", "router_jitter_noise": 1.5})", "router_jitter_noise is 1.5");
    expect(R"({"model_type": "mixtral", "router_jitter_noise": "some"})", "router_jitter_noise is \"some\"");
    expect(R"({"model_type": "mixtral", "sliding_window": 0})", "sliding_window is 0");
    expect(R"({"rope_theta": -1})", "rope_theta is -1");
    expect(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2}})", "rope_type is \"spiral\"");
    expect(R"({"rope_scaling": {"rope_type": "linear"}})", "rope_scaling: factor is missing");
    expect(R"({"rope_scaling": {"rope_type": "linear", "factor": 0.5}})", "factor is 0.5");
    expect(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
           "original_max_position_embeddings is missing");
    expect(R"({"rope_scaling": []})", "rope_scaling is []");
}

TEST(Config, MissingFileIsNamed) {
    test::expect_error([&] { ModelConfig::from_path("/nonexistent/config.json"); },
                       {"/nonexistent/config.json"});
}

TEST(Params, ModuleOrderNamesEveryLeafOnce) {
    for (const char* type : {"llama", "mistral", "mixtral", "qwen2", "qwen3"}) {
        const auto config = ModelConfig::parse(
            fmt::format(
                R"({{"model_type": "{}", "num_hidden_layers": 2, "attention_bias": true, "mlp_bias": true}})",
                type),
            "x");
        std::vector<std::string> leaves;
        make_param_spec(config).for_each_leaf([&](const LeafSpec& leaf) { leaves.push_back(leaf.name); });
        std::vector<std::string> names = names_in_module_order(config);
        EXPECT_EQ(names.front(), "model.embed_tokens.weight");
        EXPECT_EQ(names.back(), "lm_head.weight");
        std::sort(names.begin(), names.end());
        std::sort(leaves.begin(), leaves.end());
        EXPECT_EQ(names, leaves) << type;
    }
}

TEST(Params, ANormOfHeadsIsPartialOnEveryRank) {
    const auto config = ModelConfig::parse(R"({"model_type": "qwen3", "num_hidden_layers": 1})", "x");
    std::vector<std::string> always;
    make_param_spec(config).for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.partial_gradient == PartialGradient::always) always.push_back(leaf.name);
    });
    EXPECT_EQ(always, (std::vector<std::string>{"model.layers.0.self_attn.q_norm.weight",
                                                "model.layers.0.self_attn.k_norm.weight"}));
}

TEST(Params, DecayByName) {
    EXPECT_TRUE(takes_weight_decay("model.embed_tokens.weight"));
    EXPECT_TRUE(takes_weight_decay("model.layers.0.self_attn.q_proj.weight"));
    EXPECT_TRUE(takes_weight_decay("lm_head.weight"));
    EXPECT_TRUE(takes_weight_decay("model.normal.weight"));
    EXPECT_FALSE(takes_weight_decay("model.layers.0.self_attn.q_proj.bias"));
    EXPECT_FALSE(takes_weight_decay("model.layers.0.input_layernorm.weight"));
    EXPECT_FALSE(takes_weight_decay("model.layers.0.Post_RMSNorm.weight"));
    EXPECT_FALSE(takes_weight_decay("model.norm.weight"));
    EXPECT_FALSE(takes_weight_decay("model.q_norm.weight"));
}

}  // namespace
}  // namespace drover
