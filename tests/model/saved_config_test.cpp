#include "model/saved_config.h"

#include <gtest/gtest.h>

#include "core/json_text.h"
#include "model/config.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

std::optional<std::int64_t> id_of(const Json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

/// Files that transformers wrote, byte for byte.
TEST(SavedConfig, IsWhatTransformersSaves) {
    const Json cases = read_json_file(test::golden_path("configs.json"));
    ASSERT_EQ(cases.size(), 14u);
    for (const Json& golden : cases) {
        SCOPED_TRACE(golden.at("name").get<std::string>());
        const ModelConfig config = ModelConfig::parse(golden.at("input").dump(), "input");
        const DType dtype = floating_dtype_from_name(golden.at("dtype").get<std::string>(), "dtype");
        EXPECT_EQ(config.saved_text(dtype), golden.at("config").get<std::string>());
        EXPECT_EQ(generation_config_text(derived_generation_config(config)),
                  golden.at("generation_config").get<std::string>());

        for (const Json& aligned : golden.at("aligned")) {
            SCOPED_TRACE(aligned.at("tokens").dump());
            const Json& tokens = aligned.at("tokens");
            ModelConfig changed = config;
            Json generation = derived_generation_config(config);
            align_special_tokens({id_of(tokens["bos"]), id_of(tokens["eos"]), id_of(tokens["pad"])}, changed,
                                 generation);
            EXPECT_EQ(changed.saved_text(dtype), aligned.at("config").get<std::string>());
            EXPECT_EQ(generation_config_text(generation), aligned.at("generation_config").get<std::string>());
        }
    }
}

TEST(SavedConfig, ReadsBackAndIsSavedAlike) {
    for (const Json& golden : read_json_file(test::golden_path("configs.json"))) {
        const std::string text = golden.at("config").get<std::string>();
        const DType dtype = floating_dtype_from_name(golden.at("dtype").get<std::string>(), "dtype");
        EXPECT_EQ(ModelConfig::parse(text, "saved").saved_text(dtype), text) << golden.at("name");
    }
}

TEST(SavedConfig, TokensThatAgreeChangeNothingButTheList) {
    ModelConfig config = ModelConfig::parse(R"({"bos_token_id": 1, "eos_token_id": 2})", "x");
    Json generation = derived_generation_config(config);
    EXPECT_TRUE(align_special_tokens({.bos = 1, .eos = 2, .pad = {}}, config, generation).empty());
    EXPECT_EQ(generation.at("eos_token_id"), Json::array({2}));
    EXPECT_EQ(align_special_tokens({.bos = 1, .eos = 2, .pad = 5}, config, generation),
              std::vector<std::string>{"pad_token_id"});
    EXPECT_EQ(config.pad_token_id, -1);  // this does not create the embedding's padding row
    EXPECT_EQ(config.json.at("pad_token_id"), 5);
}

TEST(ConfigOverrides, HaveTheTypeOfWhatTheyReplace) {
    const ModelConfig defaults = ModelConfig::parse(R"({"model_type": "llama"})", "x");
    const ModelConfig changed =
        with_config_overrides(defaults,
                              "hidden_size=256,num_attention_heads=4,num_key_value_heads=2,rms_norm_eps=1e-5,"
                              "attention_bias=Yes,hidden_act=silu,rope_theta=5e5");
    EXPECT_EQ(changed.hidden_size, 256);
    EXPECT_EQ(changed.num_key_value_heads, 2);
    EXPECT_EQ(changed.head_dim, 128);  // the default, as transformers leaves it
    EXPECT_DOUBLE_EQ(changed.rms_norm_eps, 1e-5);
    EXPECT_DOUBLE_EQ(changed.rope.theta, 5e5);
    EXPECT_TRUE(changed.qkv_bias);
    const auto expect = [&](std::string_view overrides, std::string_view part) {
        SCOPED_TRACE(overrides);
        test::expect_error([&] { with_config_overrides(defaults, overrides); }, {part});
    };
    expect("hidden_sise=3", "has no key hidden_sise");
    expect("hidden_size=3.5", "hidden_size is \"3.5\"");
    expect("hidden_size", "holds \"hidden_size\"");
    expect("", "holds \"\"");
    expect("mlp_bias=maybe", "true or false");
    expect("pad_token_id=3", "cannot change pad_token_id");
    expect("num_attention_heads=4", "num_key_value_heads is 32");
}

TEST(SavedConfig, KeyValueHeadsOfNullAreAsManyAsHeads) {
    const ModelConfig config = ModelConfig::parse(
        R"({"model_type": "mixtral", "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": null})",
        "x");
    EXPECT_EQ(config.num_key_value_heads, 4);
    EXPECT_EQ(parse_json(config.saved_text(DType::f32), "saved").at("num_key_value_heads"), 4);
}

TEST(SavedConfig, AResizedVocabularyIsSaved) {
    ModelConfig config = ModelConfig::parse(R"({"vocab_size": 64})", "x");
    config.resize_vocabulary(71);
    EXPECT_EQ(config.vocab_size, 71);
    EXPECT_EQ(config.rows_before_resize, 64);
    EXPECT_EQ(parse_json(config.saved_text(DType::f32), "saved").at("vocab_size"), 71);
}

}  // namespace
}  // namespace drover
