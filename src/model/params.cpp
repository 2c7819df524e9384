#include "model/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace drover {
namespace {

LeafSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, Split split) {
    const bool decayed = takes_weight_decay(name);
    return {.name = std::move(name), .shape = {rows, columns}, .split = split, .decayed = decayed};
}

LeafSpec vector(std::string name, std::int64_t size, Split split, Initial initial) {
    const bool decayed = takes_weight_decay(name);
    return {.name = std::move(name), .shape = {size}, .split = split, .decayed = decayed, .initial = initial};
}

StorageSpec norm(std::string name, std::int64_t size) {
    LeafSpec leaf = vector(std::move(name), size, Split::none, Initial::ones);
    leaf.gradient_over_held_tokens = true;
    return {{leaf}};
}

/// A leaf with a row per element of the key/value heads, which are never cut.
LeafSpec of_key_value_heads(LeafSpec leaf, const ModelConfig& config) {
    leaf.largest_split = config.num_key_value_heads;
    return leaf;
}

UnitSpec block_unit(const ModelConfig& config, int index) {
    const std::string layer = fmt::format("model.layers.{}.", index);
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
    const std::int64_t query = config.query_columns(), key_value = config.key_value_columns();

    UnitSpec unit{.name = fmt::format("block {}", index), .storages = {}};
    unit.storages.resize(BlockStorage::count);
    auto& storages = unit.storages;
    storages[BlockStorage::attention_norm] = norm(layer + "input_layernorm.weight", hidden);
    storages[BlockStorage::qkv] = {{matrix(attention + "q_proj.weight", query, hidden, Split::rows),
                                    of_key_value_heads(
                                        matrix(attention + "k_proj.weight", key_value, hidden, Split::rows), config),
                                    of_key_value_heads(
                                        matrix(attention + "v_proj.weight", key_value, hidden, Split::rows), config)}};
    storages[BlockStorage::attention_output] = {
        {matrix(attention + "o_proj.weight", hidden, query, Split::columns)}};
    storages[BlockStorage::mlp_norm] = norm(layer + "post_attention_layernorm.weight", hidden);
    storages[BlockStorage::gate_up] = {{matrix(mlp + "gate_proj.weight", ffn, hidden, Split::rows),
                                        matrix(mlp + "up_proj.weight", ffn, hidden, Split::rows)}};
    storages[BlockStorage::down] = {{matrix(mlp + "down_proj.weight", hidden, ffn, Split::columns)}};
    if (config.attention_bias) {
        storages[BlockStorage::qkv_bias] = {
            {vector(attention + "q_proj.bias", query, Split::rows, Initial::zeros),
             of_key_value_heads(vector(attention + "k_proj.bias", key_value, Split::rows, Initial::zeros), config),
             of_key_value_heads(vector(attention + "v_proj.bias", key_value, Split::rows, Initial::zeros), config)}};
        storages[BlockStorage::attention_output_bias] = {
            {vector(attention + "o_proj.bias", hidden, Split::none, Initial::zeros)}};
    }
    if (config.mlp_bias) {
        storages[BlockStorage::gate_up_bias] = {
            {vector(mlp + "gate_proj.bias", ffn, Split::rows, Initial::zeros),
             vector(mlp + "up_proj.bias", ffn, Split::rows, Initial::zeros)}};
        storages[BlockStorage::down_bias] = {
            {vector(mlp + "down_proj.bias", hidden, Split::none, Initial::zeros)}};
    }
    return unit;
}

}  // namespace

ParamSpec make_param_spec(const ModelConfig& config) {
    ParamSpec spec;
    LeafSpec embedding =
        matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, Split::rows);
    embedding.zeroed_row = config.pad_token_id;
    spec.units.push_back({.name = "embedding", .storages = {{{embedding}}}});
    for (int i = 0; i < config.num_hidden_layers; ++i) spec.units.push_back(block_unit(config, i));

    StorageSpec head;
    if (!config.tie_word_embeddings)
        head = {{matrix("lm_head.weight", config.vocab_size, config.hidden_size, Split::rows)}};
    spec.units.push_back({.name = "head", .storages = {norm("model.norm.weight", config.hidden_size), head}});
    return spec;
}

std::vector<std::string> names_in_module_order(const ModelConfig& config) {
    std::vector<std::string> names = {"model.embed_tokens.weight"};
    const auto linear = [&](const std::string& name, bool bias) {
        names.push_back(name + ".weight");
        if (bias) names.push_back(name + ".bias");
    };
    for (int i = 0; i < config.num_hidden_layers; ++i) {
        const std::string layer = fmt::format("model.layers.{}.", i);
        for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
            linear(layer + "self_attn." + projection, config.attention_bias);
        for (const char* projection : {"gate_proj", "up_proj", "down_proj"})
            linear(layer + "mlp." + projection, config.mlp_bias);
        names.push_back(layer + "input_layernorm.weight");
        names.push_back(layer + "post_attention_layernorm.weight");
    }
    names.push_back("model.norm.weight");
    if (!config.tie_word_embeddings) names.push_back("lm_head.weight");
    return names;
}

bool takes_weight_decay(std::string_view name) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    for (const char* word : {"bias", "layernorm", "rmsnorm"})
        if (lower.find(word) != std::string::npos) return false;
    for (std::size_t begin = 0; begin <= lower.size();) {
        const std::size_t end = std::min(lower.find('.', begin), lower.size());
        const std::string_view part = std::string_view(lower).substr(begin, end - begin);
        if (part == "norm" || part.ends_with("_norm")) return false;
        begin = end + 1;
    }
    return true;
}

}  // namespace drover
