#include "model/saved_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "core/error.h"
#include "core/python_json.h"
#include "model/config.h"
#include "model/families/family.h"

namespace drover {
namespace {

/// The keys that transformers writes for every model of a class, with their defaults.
Json class_defaults(const ModelConfig& config) {
    const Family& family = family_of(config);
    const ModelConfig defaults = family.defaults();
    const auto id = [](std::int64_t token) { return token < 0 ? Json() : Json(token); };
    Json keys = {{"attention_dropout", 0.0},
                 {"bos_token_id", id(defaults.bos_token_id)},
                 {"eos_token_id", id(defaults.eos_token_ids.empty() ? -1 : defaults.eos_token_ids[0])},
                 {"hidden_act", "silu"},
                 {"hidden_size", defaults.hidden_size},
                 {"initializer_range", defaults.initializer_range},
                 {"intermediate_size", defaults.intermediate_size},
                 {"max_position_embeddings", defaults.max_position_embeddings},
                 {"num_attention_heads", defaults.num_attention_heads},
                 {"num_hidden_layers", defaults.num_hidden_layers},
                 {"num_key_value_heads", config.num_key_value_heads},
                 {"pad_token_id", nullptr},
                 {"rms_norm_eps", defaults.rms_norm_eps},
                 {"tie_word_embeddings", false},
                 {"use_cache", true},
                 {"vocab_size", defaults.vocab_size}};
    keys.update(family.saved_keys(config));
    return keys;
}

/// Keys that every class has; written only when they differ from these defaults.
Json common_defaults() {
    return {{"chunk_size_feed_forward", 0}, {"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}},
            {"is_encoder_decoder", false},  {"label2id", {{"LABEL_0", 0}, {"LABEL_1", 1}}},
            {"output_attentions", false},   {"output_hidden_states", false},
            {"problem_type", nullptr},      {"return_dict", true}};
}

/// Keys of generation that older releases kept in config.json.
constexpr std::array generation_keys = {"max_length",
                                        "min_length",
                                        "do_sample",
                                        "early_stopping",
                                        "num_beams",
                                        "num_beam_groups",
                                        "diversity_penalty",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "typical_p",
                                        "repetition_penalty",
                                        "length_penalty",
                                        "no_repeat_ngram_size",
                                        "bad_words_ids",
                                        "num_return_sequences",
                                        "output_scores",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "encoder_no_repeat_ngram_size",
                                        "remove_invalid_values",
                                        "exponential_decay_length_penalty",
                                        "suppress_tokens",
                                        "begin_suppress_tokens",
                                        "return_dict_in_generate"};

/// rope_theta and rope_scaling of older files, or rope_parameters, as the one object of 5.x.
Json rope_parameters(const ModelConfig& config) {
    const auto part = [&](const char* key) {
        const auto found = config.json.find(key);
        return found != config.json.end() && found->is_object() ? *found : Json::object();
    };
    Json rope = part("rope_parameters");
    if (rope.empty()) rope = part("rope_scaling");
    const auto given = [](const Json& object, const char* key) {
        return object.contains(key) && !object[key].is_null();
    };
    if (!given(rope, "rope_type")) rope["rope_type"] = given(rope, "type") ? rope["type"] : Json("default");
    if (!given(rope, "rope_theta"))
        rope["rope_theta"] =
            given(config.json, "rope_theta") ? config.json["rope_theta"] : Json(config.rope.theta);
    return rope;
}

/// The value of a --config_overrides text, converted to the type of the old one.
Json overriding_value(std::string_view key, const std::string& text, const Json& old) {
    const auto fail = [&](std::string_view expected) -> Json {
        throw UsageError(fmt::format("--config_overrides: {} is \"{}\".", key, text),
                         fmt::format("Give {}.", expected));
    };
    const auto number = [&](auto value, std::string_view expected) {
        const char* const end = text.data() + text.size();
        const auto [stopped, error] = std::from_chars(text.data(), end, value);
        return error == std::errc() && stopped == end ? Json(value) : fail(expected);
    };
    if (old.is_string()) return text;
    if (old.is_number_integer()) return number(std::int64_t{0}, "a whole number");
    if (old.is_number()) return number(0.0, "a number");
    if (!old.is_boolean())
        throw UsageError(fmt::format("--config_overrides cannot change {}, which is neither a number, a "
                                     "string, nor true or false.",
                                     key),
                         "Write a config.json and give its path with --config_name.");
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* word : {"true", "1", "y", "yes"})
        if (lower == word) return true;
    for (const char* word : {"false", "0", "n", "no"})
        if (lower == word) return false;
    return fail("true or false");
}

Json optional_id(const std::optional<std::int64_t>& id) {
    return id ? Json(*id) : Json();
}

}  // namespace

ModelConfig with_config_overrides(const ModelConfig& config, std::string_view overrides) {
    Json changed = class_defaults(config);
    changed["model_type"] = config.model_type;
    changed["rope_theta"] = config.rope.theta;
    changed.update(config.json);
    for (std::size_t begin = 0; begin <= overrides.size();) {
        const std::size_t end = std::min(overrides.find(',', begin), overrides.size());
        const std::string_view item = overrides.substr(begin, end - begin);
        const std::size_t equals = item.find('=');
        if (equals == std::string_view::npos || item.find('=', equals + 1) != std::string_view::npos)
            throw UsageError(fmt::format("--config_overrides holds \"{}\".", item),
                             "Write key=value,key=value without spaces.");
        const std::string key(item.substr(0, equals));
        if (!changed.contains(key))
            throw UsageError(
                fmt::format("--config_overrides: a {} config has no key {}.", config.model_type, key),
                "Check its spelling; the keys are those of config.json.");
        changed[key] = overriding_value(key, std::string(item.substr(equals + 1)), changed[key]);
        begin = end + 1;
    }
    return ModelConfig::parse(changed.dump(), "--config_overrides");
}

ModelConfig with_sizes(const ModelConfig& config, std::int64_t layers, std::int64_t width) {
    Json changed = config.json;
    if (layers > 0) {
        changed["num_hidden_layers"] = layers;
        changed.erase("layer_types");
    }
    if (width > 0) {
        changed["hidden_size"] = width;
        if (config.head_dim * config.num_attention_heads == config.hidden_size) changed.erase("head_dim");
    }
    return ModelConfig::parse(changed.dump(), width > 0 ? "With --hidden_size" : "With --num_layer");
}

ModelConfig with_positions(const ModelConfig& config, std::int64_t positions) {
    Json changed = config.json;
    changed["max_position_embeddings"] = positions;
    return ModelConfig::parse(changed.dump(), "With more positions");
}

std::string ModelConfig::saved_text(DType saved_dtype) const {
    Json saved = class_defaults(*this);
    for (const auto& [key, value] : json.items()) {
        // Where null means a value that transformers derives, that value is saved.
        const bool derived = key == "head_dim" || key == "num_key_value_heads" || key == "layer_types";
        if (!derived || !value.is_null()) saved[key] = value;
    }
    saved["rope_parameters"] = rope_parameters(*this);
    const Json common = common_defaults();
    for (const auto& [key, value] : common.items())
        if (saved.contains(key) && saved[key] == value) saved.erase(key);
    for (const char* key : generation_keys) saved.erase(key);
    for (const char* key : {"_name_or_path", "torch_dtype", "rope_scaling", "rope_theta"}) saved.erase(key);
    const Family& family = family_of(*this);
    if (family.overwritten_keys != nullptr) saved.update(family.overwritten_keys(*this));
    saved["architectures"] = Json::array({family.architecture});
    saved["dtype"] = name_of(saved_dtype);
    saved["model_type"] = model_type;
    saved["transformers_version"] = transformers_version;
    saved["vocab_size"] = vocab_size;
    return python_json(saved, 2) + "\n";
}

Json derived_generation_config(const ModelConfig& config) {
    Json generation = {
        {"_from_model_config", true}, {"output_attentions", false}, {"output_hidden_states", false}};
    const Json defaults = class_defaults(config);
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "use_cache"}) {
        const Json& value = config.json.contains(key) ? config.json[key] : defaults[key];
        if (!value.is_null()) generation[key] = value;
    }
    return generation;
}

std::string generation_config_text(Json generation) {
    std::vector<std::string> absent;
    for (const auto& [key, value] : generation.items())
        if (value.is_null()) absent.push_back(key);
    for (const std::string& key : absent) generation.erase(key);
    generation["transformers_version"] = transformers_version;
    return python_json(generation, 2) + "\n";
}

std::vector<std::string> align_special_tokens(const SpecialTokenIds& tokens, ModelConfig& config,
                                              Json& generation) {
    std::vector<std::string> changed;
    const Json defaults = class_defaults(config);
    const auto in_config = [&](const char* key) {
        return config.json.contains(key) ? config.json[key] : defaults[key];
    };
    const auto in_generation = [&](const char* key) {
        return generation.contains(key) ? generation[key] : Json();
    };

    const Json eos = optional_id(tokens.eos);
    bool new_eos = eos != in_config("eos_token_id");
    Json ends = in_generation("eos_token_id");
    if (ends.is_null()) {
        new_eos = new_eos || !eos.is_null();
    } else {
        if (!ends.is_array()) ends = Json::array({ends});
        new_eos = new_eos || std::find(ends.begin(), ends.end(), eos) == ends.end();
    }
    if (new_eos) {
        changed.emplace_back("eos_token_id");
        config.json["eos_token_id"] = eos;
        Json all = eos.is_null() ? Json::array() : Json::array({eos});
        if (ends.is_array()) all.insert(all.end(), ends.begin(), ends.end());
        ends = all;
    }
    generation["eos_token_id"] = ends;

    const auto align = [&](const char* key, const Json& id) {
        if (id == in_config(key) && id == in_generation(key)) return;
        changed.emplace_back(key);
        config.json[key] = generation[key] = id;
    };
    align("bos_token_id", optional_id(tokens.bos));
    align("pad_token_id", optional_id(tokens.pad));
    return changed;
}

}  // namespace drover
