#include "peft/peft_config.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text_file.h"
#include "peft/adapter_card.h"
#include "peft/adapter_cases.h"
#include "support/errors.h"

namespace drover {
namespace {

PeftConfig with(const std::string& key, const Json& value, const PeftWarning& warn = {}) {
    Json values = {{"peft_type", "LORA"}};
    values[key] = value;
    return PeftConfig::parse(values.dump(), "adapter_config.json", warn);
}

TEST(PeftConfig, AFileOfPeftIsWrittenAgainAsItWas) {
    for (const char* name : test::adapter_cases) {
        const std::filesystem::path file =
            test::golden_path(std::string("peft/") + name) / adapter_config_file;
        std::string warnings;
        const PeftConfig config =
            PeftConfig::read(file.parent_path(), [&](const std::string& line) { warnings += line; });
        EXPECT_EQ(config.text(), read_text_file(file)) << name;
        EXPECT_EQ(warnings, "") << name;
    }
}

TEST(PeftConfig, DefaultsAreThoseOfPeft) {
    const PeftConfig config = PeftConfig::parse(R"({"peft_type": "LORA"})", "adapter_config.json");
    EXPECT_EQ(config.rank, 8);
    EXPECT_EQ(config.alpha, 8);
    EXPECT_EQ(config.dropout, 0);
    EXPECT_TRUE(std::holds_alternative<std::monostate>(config.targets));
    EXPECT_EQ(config.values.size(), 41);
}

TEST(PeftConfig, ReadsEveryFormOfAKey) {
    EXPECT_EQ(std::get<std::string>(with("target_modules", "all-linear").targets), "all-linear");
    EXPECT_EQ(std::get<std::vector<std::string>>(with("target_modules", Json::array({"a", "b"})).targets),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(with("layers_to_transform", 3).layers, (std::vector<std::int64_t>{3}));
    EXPECT_EQ(with("layers_to_transform", Json::array({1, 2})).layers, (std::vector<std::int64_t>{1, 2}));
    EXPECT_FALSE(with("layers_to_transform", Json::array()).layers);
    EXPECT_EQ(with("rank_pattern", Json{{"b", 3}, {"a", 4}}).ranks,
              (std::vector<std::pair<std::string, std::int64_t>>{{"b", 3}, {"a", 4}}));
    EXPECT_EQ(with("lora_alpha", 2.5).alpha, 2.5);
    EXPECT_NO_THROW(with("init_lora_weights", "gaussian"));
    EXPECT_NO_THROW(with("init_lora_weights", false));
}

TEST(PeftConfig, UnknownKeysAreDroppedWithALine) {
    std::string warnings;
    const PeftConfig config =
        with("of_the_future", Json{{"a", 1}}, [&](const std::string& line) { warnings += line; });
    EXPECT_NE(warnings.find("of_the_future"), std::string::npos) << warnings;
    EXPECT_EQ(config.text().find("of_the_future"), std::string::npos);
    warnings.clear();
    with("runtime_config", Json::object(), [&](const std::string& line) { warnings += line; });
    EXPECT_EQ(warnings, "");
}

TEST(PeftConfig, RefusesWhatCannotBeComputed) {
    struct Case {
        const char* key;
        Json value;
        const char* words;
    };
    for (const Case& item :
         {Case{"peft_type", "IA3", "Only adapters of the type LORA"},
          Case{"task_type", "SEQ_CLS", "must be CAUSAL_LM"},
          Case{"bias", "all", "base model's biases"},
          Case{"fan_in_fan_out", true, "stored transposed"},
          Case{"layer_replication", Json::array({1}), "layers that are repeated"},
          Case{"megatron_config", Json{{"a", 1}}, "Megatron"},
          Case{"lora_bias", true, "biases in adapters"},
          Case{"alora_invocation_tokens", Json::array({1, 2}), "aLoRA"},
          Case{"trainable_token_indices", Json::array({1}), "single rows of the embedding"},
          Case{"init_lora_weights", "pissa_niter_4", "changes the base model's weights"},
          Case{"init_lora_weights", "olora", "changes the base model's weights"},
          Case{"init_lora_weights", "mica", "not known here"},
          Case{"init_lora_weights", 3, "must be true, false"},
          Case{"r", 0, "from 1 to"},
          Case{"lora_dropout", 1.0, "below 1.0"},
          Case{"target_modules", 7, "must be a list of names"},
          Case{"modules_to_save", "lm_head", "must be a list of names"},
          Case{"layers_to_transform", "all", "layer's number"},
          Case{"rank_pattern", Json{{"q_proj", 0}}, "from 1 to"},
          Case{"layers_pattern", "layers", "without layers_to_transform"}})
        test::expect_error([&] { with(item.key, item.value); }, {item.words});
    test::expect_error([] { PeftConfig::parse(R"({"r": 8})", "f"); }, {"f has no peft_type"});
    test::expect_error(
        [] {
            PeftConfig::parse(R"({"peft_type": "LORA", "target_modules": "a", "layers_to_transform": 1})",
                              "f");
        },
        {"target_modules is an expression"});
}

TEST(AdapterCard, HasTheHeadThatPeftWrites) {
    EXPECT_TRUE(adapter_card(with("base_model_name_or_path", "a/b"))
                    .starts_with("---\nbase_model: a/b\nlibrary_name: peft\npipeline_tag: text-generation\n"
                                 "tags:\n- base_model:adapter:a/b\n- lora\n- transformers\n---\n"));
}

}  // namespace
}  // namespace drover
