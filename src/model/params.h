#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hf_compat.h"
#include "parallel/param_spec.h"

namespace drover {

struct ModelConfig;

/// The storages of a decoder block's unit.
struct BlockStorage {
    enum Index : std::size_t {
        attention_norm,         ///< [H]
        qkv,                    ///< [(heads + 2·kv_heads)·D, H]
        qkv_bias,               ///< [(heads + 2·kv_heads)·D], optional
        attention_output,       ///< [H, heads·D]
        attention_output_bias,  ///< [H], optional
        query_norm,             ///< [D], optional: of each head of q, before the rotation
        key_norm,               ///< [D], optional: likewise of k
        mlp_norm,               ///< [H]
        gate_up,                ///< [2I, H]
        gate_up_bias,           ///< [2I], optional
        down,                   ///< [H, I]
        down_bias,              ///< [H], optional
        router,                 ///< [E, H]; with it, the experts take the place of gate_up and down
        experts_gate_up,        ///< [E·2I, H], gate and up of one expert after the other
        experts_down,           ///< [E·H, I]
        count
    };
};

/// The storage of the embedding's unit.
struct EmbeddingStorage {
    enum Index : std::size_t { weight /*[V,H]*/, count };
};

/// The storages of the head's unit.
struct HeadStorage {
    enum Index : std::size_t { norm /*[H]*/, weight /*[V,H], absent when tied to the embedding*/, count };
};

/// Positions of the units in a ParamSpec.
struct UnitIndex {
    static constexpr int embedding = 0;
    static constexpr int block(int index) { return 1 + index; }
    static constexpr int head(int blocks) { return 1 + blocks; }
};

/// Every parameter of the model under its published name.
ParamSpec make_param_spec(const ModelConfig& config, const HfCompat& compat = {});

/// Parameters used in a token's forward pass: all but those of the experts that it does not choose.
std::int64_t active_parameter_count(const ModelConfig& config);

/// The names in the order in which PyTorch's modules list them (and checkpoints number them).
std::vector<std::string> names_in_module_order(const ModelConfig& config);

/// Hugging Face's rule: biases and norm weights are excluded, by name.
bool takes_weight_decay(std::string_view name);

}  // namespace drover
