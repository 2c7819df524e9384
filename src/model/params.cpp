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

std::string layer_prefix(int index) {
    return fmt::format("model.layers.{}.", index);
}

void add_attention(const ModelConfig& config, int index, std::vector<StorageSpec>& storages) {
    const std::string attention = layer_prefix(index) + "self_attn.";
    const std::int64_t hidden = config.hidden_size, query = config.query_columns(),
                       key_value = config.key_value_columns();
    const auto key_value_matrix = [&](const char* name) {
        return of_key_value_heads(matrix(attention + name, key_value, hidden, Split::rows), config);
    };
    const auto key_value_bias = [&](const char* name) {
        return of_key_value_heads(vector(attention + name, key_value, Split::rows, Initial::zeros), config);
    };
    storages[BlockStorage::attention_norm] = norm(layer_prefix(index) + "input_layernorm.weight", hidden);
    storages[BlockStorage::qkv] = {{matrix(attention + "q_proj.weight", query, hidden, Split::rows),
                                    key_value_matrix("k_proj.weight"), key_value_matrix("v_proj.weight")}};
    storages[BlockStorage::attention_output] = {
        {matrix(attention + "o_proj.weight", hidden, query, Split::columns)}};
    if (config.attention_bias) {
        storages[BlockStorage::qkv_bias] = {
            {vector(attention + "q_proj.bias", query, Split::rows, Initial::zeros),
             key_value_bias("k_proj.bias"), key_value_bias("v_proj.bias")}};
        storages[BlockStorage::attention_output_bias] = {
            {vector(attention + "o_proj.bias", hidden, Split::none, Initial::zeros)}};
    }
}

void add_dense_feed_forward(const ModelConfig& config, int index, std::vector<StorageSpec>& storages) {
    const std::string mlp = layer_prefix(index) + "mlp.";
    const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
    storages[BlockStorage::gate_up] = {{matrix(mlp + "gate_proj.weight", ffn, hidden, Split::rows),
                                        matrix(mlp + "up_proj.weight", ffn, hidden, Split::rows)}};
    storages[BlockStorage::down] = {{matrix(mlp + "down_proj.weight", hidden, ffn, Split::columns)}};
    if (config.mlp_bias) {
        storages[BlockStorage::gate_up_bias] = {
            {vector(mlp + "gate_proj.bias", ffn, Split::rows, Initial::zeros),
             vector(mlp + "up_proj.bias", ffn, Split::rows, Initial::zeros)}};
        storages[BlockStorage::down_bias] = {
            {vector(mlp + "down_proj.bias", hidden, Split::none, Initial::zeros)}};
    }
}

/// With fused experts (transformers 5.x), all gates and ups are one tensor to the optimizer, and so are all
/// downs.
void add_experts(const ModelConfig& config, int index, bool fused, std::vector<StorageSpec>& storages) {
    const std::string moe = layer_prefix(index) + "block_sparse_moe.";
    const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
    storages[BlockStorage::router] = {{matrix(moe + "gate.weight", config.moe.experts, hidden, Split::none)}};
    for (std::int64_t e = 0; e < config.moe.experts; ++e) {
        const std::string expert = fmt::format("{}experts.{}.", moe, e);
        LeafSpec gate = matrix(expert + "w1.weight", ffn, hidden, Split::rows);
        LeafSpec up = matrix(expert + "w3.weight", ffn, hidden, Split::rows);
        LeafSpec down = matrix(expert + "w2.weight", hidden, ffn, Split::columns);
        if (fused) {
            gate.statistics_group = up.statistics_group = expert + "gate_up";
            gate.clip_group = up.clip_group = moe + "experts.gate_up";
            down.clip_group = moe + "experts.down";
        }
        auto& gate_up = storages[BlockStorage::experts_gate_up].leaves;
        gate_up.push_back(std::move(gate));
        gate_up.push_back(std::move(up));
        storages[BlockStorage::experts_down].leaves.push_back(std::move(down));
    }
}

UnitSpec block_unit(const ModelConfig& config, const HfCompat& compat, int index) {
    UnitSpec unit{.name = fmt::format("block {}", index), .storages = {}};
    unit.storages.resize(BlockStorage::count);
    add_attention(config, index, unit.storages);
    unit.storages[BlockStorage::mlp_norm] =
        norm(layer_prefix(index) + "post_attention_layernorm.weight", config.hidden_size);
    if (config.has_experts())
        add_experts(config, index, compat.mixtral_experts_fused, unit.storages);
    else
        add_dense_feed_forward(config, index, unit.storages);
    if (config.has_experts() && compat.mixtral_norms_decayed)
        for (const auto storage : {BlockStorage::attention_norm, BlockStorage::mlp_norm})
            unit.storages[storage].leaves[0].decayed = true;
    return unit;
}

}  // namespace

ParamSpec make_param_spec(const ModelConfig& config, const HfCompat& compat) {
    ParamSpec spec;
    LeafSpec embedding =
        matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, Split::rows);
    embedding.zeroed_row = config.pad_token_id;
    spec.units.push_back({.name = "embedding", .storages = {{{embedding}}}});
    for (int i = 0; i < config.num_hidden_layers; ++i) spec.units.push_back(block_unit(config, compat, i));

    StorageSpec head;
    if (!config.tie_word_embeddings)
        head = {{matrix("lm_head.weight", config.vocab_size, config.hidden_size, Split::rows)}};
    StorageSpec final_norm = norm("model.norm.weight", config.hidden_size);
    if (config.has_experts() && compat.mixtral_norms_decayed) final_norm.leaves[0].decayed = true;
    spec.units.push_back({.name = "head", .storages = {final_norm, head}});
    return spec;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    const std::int64_t expert = 3 * config.hidden_size * config.intermediate_size;
    const std::int64_t unused = config.has_experts() ? config.moe.experts - config.moe.chosen : 0;
    return make_param_spec(config).parameter_count() - config.num_hidden_layers * unused * expert;
}

std::vector<std::string> names_in_module_order(const ModelConfig& config) {
    std::vector<std::string> names = {"model.embed_tokens.weight"};
    const auto linear = [&](const std::string& name, bool bias) {
        names.push_back(name + ".weight");
        if (bias) names.push_back(name + ".bias");
    };
    for (int i = 0; i < config.num_hidden_layers; ++i) {
        const std::string layer = layer_prefix(i);
        for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
            linear(layer + "self_attn." + projection, config.attention_bias);
        if (config.has_experts()) {
            linear(layer + "block_sparse_moe.gate", false);
            for (std::int64_t e = 0; e < config.moe.experts; ++e)
                for (const char* projection : {"w1", "w2", "w3"})
                    linear(fmt::format("{}block_sparse_moe.experts.{}.{}", layer, e, projection), false);
        } else {
            for (const char* projection : {"gate_proj", "up_proj", "down_proj"})
                linear(layer + "mlp." + projection, config.mlp_bias);
        }
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
