#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// What PEFT's files put before the names of the model's leaves.
inline constexpr std::string_view adapter_prefix = "base_model.model.";

inline constexpr std::string_view embedding_leaf = "model.embed_tokens.weight";
inline constexpr std::string_view head_leaf = "lm_head.weight";

/// A weight with a low-rank adapter (LoRA): y = W·x + scale·B·(A·x), where only A [rank,in] and B [out,rank]
/// are trained. The embedding's weight W [V,H] becomes W + scale·(B·A)ᵀ, with A [rank,V] and B [H,rank].
struct AdaptedWeight {
    std::string leaf;       ///< "model.layers.0.self_attn.q_proj.weight"
    std::int64_t rank = 0;  ///< r
    double scale = 1;       ///< alpha/r, or alpha/√r

    bool is_embedding() const { return leaf == embedding_leaf; }
    bool is_router() const { return leaf.ends_with(".block_sparse_moe.gate.weight"); }
    /// The names of its leaves.
    std::string a() const { return module() + (is_embedding() ? ".lora_embedding_A" : ".lora_A.weight"); }
    std::string b() const { return module() + (is_embedding() ? ".lora_embedding_B" : ".lora_B.weight"); }
    std::string magnitudes() const { return module() + ".lora_magnitude_vector"; }
    /// "model.layers.0.self_attn.q_proj"
    std::string module() const { return leaf.substr(0, leaf.rfind('.')); }

    bool operator==(const AdaptedWeight&) const = default;
};

/// What is trained of a model whose other weights stay as they are.
struct Adapters {
    std::vector<AdaptedWeight> weights;       ///< in module order
    std::vector<std::string> trained_leaves;  ///< of the model itself, trained whole (modules_to_save)
    double dropout = 0;                       ///< share of an adapter's inputs that are dropped in training
    /// DoRA: rows of W + scale·B·A are scaled to trained lengths, the leaves ".lora_magnitude_vector".
    bool magnitudes = false;

    /// Whether the embedding, or the head, is not what it was. A model in which they are one must then have
    /// them apart (ModelConfig::separate_head).
    bool change_vocabulary() const {
        const auto is_one = [](std::string_view leaf) { return leaf == embedding_leaf || leaf == head_leaf; };
        for (const AdaptedWeight& weight : weights)
            if (is_one(weight.leaf)) return true;
        for (const std::string& leaf : trained_leaves)
            if (is_one(leaf)) return true;
        return false;
    }
    /// Otherwise the whole model is trained.
    bool any() const { return !weights.empty() || !trained_leaves.empty(); }
    bool operator==(const Adapters&) const = default;
};

}  // namespace drover
