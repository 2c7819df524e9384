#include "model/families/leaves.h"

#include <fmt/format.h>

#include "model/config.h"

namespace drover {
namespace {

/// A leaf with a row per element of the key/value heads, which are never cut.
LeafSpec of_key_value_heads(LeafSpec leaf, const ModelConfig& config) {
    leaf.largest_split = config.num_key_value_heads;
    return leaf;
}

/// The weight [D] of a norm over each head. A rank sees only its own heads, so its gradient is always
/// partial.
LeafSpec head_norm_leaf(std::string name, std::int64_t head_dim) {
    LeafSpec leaf = vector_leaf(std::move(name), head_dim, Split::none, Initial::ones);
    leaf.partial_gradient = PartialGradient::always;
    return leaf;
}

}  // namespace

std::string layer_prefix(int index) {
    return fmt::format("model.layers.{}.", index);
}

LeafSpec matrix_leaf(std::string name, std::int64_t rows, std::int64_t columns, Split split) {
    const bool decayed = takes_weight_decay(name);
    return {.name = std::move(name), .shape = {rows, columns}, .split = split, .decayed = decayed};
}

LeafSpec vector_leaf(std::string name, std::int64_t size, Split split, Initial initial) {
    const bool decayed = takes_weight_decay(name);
    return {.name = std::move(name), .shape = {size}, .split = split, .decayed = decayed, .initial = initial};
}

LeafSpec norm_leaf(std::string name, std::int64_t size) {
    LeafSpec leaf = vector_leaf(std::move(name), size, Split::none, Initial::ones);
    leaf.partial_gradient = PartialGradient::when_tokens_are_split;
    return leaf;
}

void add_attention(const ModelConfig& config, int index, BlockLeaves& leaves) {
    const std::string attention = layer_prefix(index) + "self_attn.";
    const std::int64_t hidden = config.hidden_size, query = config.query_columns();
    const auto add_projection = [&](const std::string& name, std::int64_t rows, bool key_value) {
        LeafSpec weight = matrix_leaf(attention + name + ".weight", rows, hidden, Split::rows);
        LeafSpec bias = vector_leaf(attention + name + ".bias", rows, Split::rows, Initial::zeros);
        if (key_value) {
            weight = of_key_value_heads(std::move(weight), config);
            bias = of_key_value_heads(std::move(bias), config);
        }
        leaves.push_back({BlockStorage::qkv, std::move(weight)});
        if (config.qkv_bias) leaves.push_back({BlockStorage::qkv_bias, std::move(bias)});
    };
    add_projection("q_proj", query, false);
    add_projection("k_proj", config.key_value_columns(), true);
    add_projection("v_proj", config.key_value_columns(), true);
    leaves.push_back({BlockStorage::attention_output,
                      matrix_leaf(attention + "o_proj.weight", hidden, query, Split::columns)});
    if (config.attention_output_bias)
        leaves.push_back({BlockStorage::attention_output_bias,
                          vector_leaf(attention + "o_proj.bias", hidden, Split::none, Initial::zeros)});
    if (config.head_norms) {
        leaves.push_back(
            {BlockStorage::query_norm, head_norm_leaf(attention + "q_norm.weight", config.head_dim)});
        leaves.push_back(
            {BlockStorage::key_norm, head_norm_leaf(attention + "k_norm.weight", config.head_dim)});
    }
}

void add_dense_feed_forward(const ModelConfig& config, int index, BlockLeaves& leaves) {
    const std::string mlp = layer_prefix(index) + "mlp.";
    const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
    for (const char* name : {"gate_proj", "up_proj"}) {
        leaves.push_back(
            {BlockStorage::gate_up, matrix_leaf(mlp + name + ".weight", ffn, hidden, Split::rows)});
        if (config.mlp_bias)
            leaves.push_back({BlockStorage::gate_up_bias,
                              vector_leaf(mlp + name + ".bias", ffn, Split::rows, Initial::zeros)});
    }
    leaves.push_back(
        {BlockStorage::down, matrix_leaf(mlp + "down_proj.weight", hidden, ffn, Split::columns)});
    if (config.mlp_bias)
        leaves.push_back({BlockStorage::down_bias,
                          vector_leaf(mlp + "down_proj.bias", hidden, Split::none, Initial::zeros)});
}

void add_block_norms(const ModelConfig& config, int index, BlockLeaves& leaves) {
    leaves.push_back({BlockStorage::attention_norm,
                      norm_leaf(layer_prefix(index) + "input_layernorm.weight", config.hidden_size)});
    leaves.push_back(
        {BlockStorage::mlp_norm,
         norm_leaf(layer_prefix(index) + "post_attention_layernorm.weight", config.hidden_size)});
}

BlockLeaves dense_block_leaves(const ModelConfig& config, const HfCompat&, int index) {
    BlockLeaves leaves;
    add_attention(config, index, leaves);
    add_dense_feed_forward(config, index, leaves);
    add_block_norms(config, index, leaves);
    return leaves;
}

}  // namespace drover
