#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hf_compat.h"
#include "model/adapters.h"
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

        // Adapters (model/adapters.h) of the matrices above, all optional. The A of a matrix' leaves are one
        // below the other, those that there are; each leaf's B is a storage of its own.
        qkv_a,  ///< [R, H]
        query_b,
        key_b,
        value_b,             ///< [rows of the leaf, r]
        attention_output_a,  ///< [r, heads·D]
        attention_output_b,  ///< [H, r]
        gate_up_a,           ///< [R, H]
        gate_b,
        up_b,               ///< [I, r]
        down_a,             ///< [r, I]
        down_b,             ///< [H, r]
        router_a,           ///< [r, H]
        router_b,           ///< [E, r]
        experts_gate_up_a,  ///< [E·R, H], one expert after the other
        experts_gate_b,
        experts_up_b,      ///< [E·I, r]
        experts_down_a,    ///< [E·r, I]
        experts_down_b,    ///< [E·H, r]
        query_magnitudes,  ///< with DoRA, [rows of the leaf], and so on
        key_magnitudes,
        value_magnitudes,
        attention_output_magnitudes,
        gate_magnitudes,
        up_magnitudes,
        down_magnitudes,
        count
    };
};

/// Where the adapters of one of a block's matrices are.
struct AdapterStorages {
    BlockStorage::Index weight;
    BlockStorage::Index a;
    /// For each of the matrix' leaves, in their order; of experts, for each leaf of one expert.
    std::vector<BlockStorage::Index> b;
    std::vector<BlockStorage::Index> magnitudes;  ///< likewise; empty: DoRA is not supported

    bool has_experts() const {
        return weight == BlockStorage::experts_gate_up || weight == BlockStorage::experts_down;
    }
};

/// The matrices of a block that can be adapted; a BlockActivations has something of each, in this order.
enum class AdaptedMatrix : std::uint8_t { qkv, attention_output, gate_up, down, count };

/// Of the two kinds of feed-forward, the one that `weight` is part of.
AdaptedMatrix adapted_matrix(BlockStorage::Index weight);
/// All of them, and the router's (RouterProduct).
const std::vector<AdapterStorages>& adapter_storages();
/// Those of one matrix.
const AdapterStorages& adapter_storages(BlockStorage::Index weight);

/// The storages of the embedding's unit.
struct EmbeddingStorage {
    enum Index : std::size_t { weight /*[V,H]*/, adapter_a /*[r,V]*/, adapter_b /*[H,r]*/, count };
};

/// The storages of the head's unit.
struct HeadStorage {
    enum Index : std::size_t {
        norm,       ///< [H]
        weight,     ///< [V,H], absent when tied to the embedding
        adapter_a,  ///< [r,H], optional, as the next
        adapter_b,  ///< [V,r]
        count
    };
};

/// Positions of the units in a ParamSpec.
struct UnitIndex {
    static constexpr int embedding = 0;
    static constexpr int block(int index) { return 1 + index; }
    static constexpr int head(int blocks) { return 1 + blocks; }
};

/// Every parameter of the model under its published name. With adapters, these are added to the units, and of
/// the model's own leaves only those are trained that the adapters list. Error for a leaf that cannot be
/// adapted, or is not there.
ParamSpec make_param_spec(const ModelConfig& config, const HfCompat& compat = {},
                          const Adapters& adapters = {});

/// Parameters used in a token's forward pass: all but those of the experts that it does not choose.
std::int64_t active_parameter_count(const ModelConfig& config);

/// The names in the order in which PyTorch's modules list them (and checkpoints number them).
std::vector<std::string> names_in_module_order(const ModelConfig& config);

/// Hugging Face's rule: biases and norm weights are excluded, by name.
bool takes_weight_decay(std::string_view name);

}  // namespace drover
