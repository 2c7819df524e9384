#include "train/state/run_facts.h"

#include <fmt/format.h>

#include "core/python_json.h"
#include "model/config.h"

namespace drover {
namespace {

constexpr const char* facts_key = "run";

std::string line(std::string_view name, const Json& now, const Json& saved) {
    return fmt::format("\n\t{}: {} (now) != {} (checkpoint)", name, python_repr(now), python_repr(saved));
}

/// Returns "content" for "content 3f…".
std::string_view kind_of(std::string_view data) {
    return data.substr(0, data.find(' '));
}

const char* name_of(RopeConfig::Type type) {
    switch (type) {
        case RopeConfig::Type::plain:
            return "default";
        case RopeConfig::Type::linear:
            return "linear";
        case RopeConfig::Type::dynamic:
            return "dynamic";
        case RopeConfig::Type::llama3:
            return "llama3";
        case RopeConfig::Type::yarn:
            return "yarn";
    }
    return "";
}

/// The same keys for any form of the file.
Json values_of(const ModelConfig& config) {
    const RopeConfig& rope = config.rope;
    const MoeConfig& moe = config.moe;
    return {{"model_type", config.model_type},
            {"vocab_size", config.vocab_size},
            {"hidden_size", config.hidden_size},
            {"intermediate_size", config.intermediate_size},
            {"num_hidden_layers", config.num_hidden_layers},
            {"num_attention_heads", config.num_attention_heads},
            {"num_key_value_heads", config.num_key_value_heads},
            {"head_dim", config.head_dim},
            {"max_position_embeddings", config.max_position_embeddings},
            {"rms_norm_eps", config.rms_norm_eps},
            {"tie_word_embeddings", config.tie_word_embeddings},
            {"attention_bias", config.qkv_bias},
            {"mlp_bias", config.mlp_bias},
            {"sliding_window", config.sliding_window},
            {"layer_types", config.sliding_layers},
            {"rope_type", name_of(rope.type)},
            {"rope_theta", rope.theta},
            {"rope factor", rope.factor},
            {"rope original_max_position_embeddings", rope.original_max_position_embeddings},
            {"rope low_freq_factor", rope.low_frequency_factor},
            {"rope high_freq_factor", rope.high_frequency_factor},
            {"rope beta_fast", rope.beta_fast},
            {"rope beta_slow", rope.beta_slow},
            {"rope mscale", rope.mscale},
            {"rope mscale_all_dim", rope.mscale_all_dim},
            {"rope attention_factor", rope.attention_factor},
            {"rope truncate", rope.truncate},
            {"num_local_experts", moe.experts},
            {"num_experts_per_tok", moe.chosen},
            {"output_router_logits", moe.balance_loss},
            {"router_aux_loss_coef", moe.balance_coefficient},
            {"router_jitter_noise", moe.jitter}};
}

}  // namespace

Json RunFacts::json() const {
    return {{"data", data}, {"tokenizer", tokenizer}, {"total_batch", total_batch}};
}

RunFacts RunFacts::from(const Json& state) {
    RunFacts facts;
    if (!state.is_object() || !state.contains(facts_key) || !state.at(facts_key).is_object()) return facts;
    const Json& saved = state.at(facts_key);
    const auto text = [&](const char* name) {
        return saved.contains(name) && saved.at(name).is_string() ? saved.at(name).get<std::string>() : "";
    };
    facts.data = text("data");
    facts.tokenizer = text("tokenizer");
    if (saved.contains("total_batch") && saved.at("total_batch").is_number_integer())
        facts.total_batch = saved.at("total_batch").get<std::int64_t>();
    return facts;
}

std::string changed_facts(const RunFacts& now, const RunFacts& saved) {
    std::string lines;
    const bool comparable = !now.data.empty() && kind_of(now.data) == kind_of(saved.data);
    if (comparable && now.data != saved.data)
        lines += line("hash of the training text", now.data, saved.data);
    if (!now.tokenizer.empty() && !saved.tokenizer.empty() && now.tokenizer != saved.tokenizer)
        lines += line("hash of the tokenizer", now.tokenizer, saved.tokenizer);
    if (now.total_batch > 0 && saved.total_batch > 0 && now.total_batch != saved.total_batch)
        lines += line("rows of an update, over all processes", now.total_batch, saved.total_batch);
    return lines;
}

std::string changed_config(const ModelConfig& now, const ModelConfig& saved) {
    std::string lines;
    const Json after = values_of(now), before = values_of(saved);
    for (const auto& [name, value] : after.items())
        if (value != before.at(name)) lines += line("config " + name, value, before.at(name));
    return lines;
}

}  // namespace drover
