#pragma once

#include "model/families/family.h"

/// The leaves that decoder blocks are made of, for families to choose from.
namespace drover {

/// "model.layers.3."
std::string layer_prefix(int index);

/// [rows,columns], drawn from a normal distribution.
LeafSpec matrix_leaf(std::string name, std::int64_t rows, std::int64_t columns, Split split);
/// [size], constant at the start.
LeafSpec vector_leaf(std::string name, std::int64_t size, Split split, Initial initial);
/// The weight [size] of a norm over the hidden dimension.
LeafSpec norm_leaf(std::string name, std::int64_t size);

using BlockLeaves = std::vector<BlockLeaf>;

/// self_attn: q, k, v and o with the biases that the config asks for, then the norms of q and k.
void add_attention(const ModelConfig& config, int index, BlockLeaves& leaves);
/// mlp: gate, up and down, with biases if the config asks for them.
void add_dense_feed_forward(const ModelConfig& config, int index, BlockLeaves& leaves);
/// input_layernorm and post_attention_layernorm.
void add_block_norms(const ModelConfig& config, int index, BlockLeaves& leaves);

/// A block of attention, a dense feed-forward and two norms.
BlockLeaves dense_block_leaves(const ModelConfig& config, const HfCompat& compat, int index);

}  // namespace drover
