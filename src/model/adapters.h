#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// What PEFT's files put before the names of the model's leaves.
inline constexpr std::string_view adapter_prefix = "base_model.model.";

/// A weight with a low-rank adapter (LoRA): y = W·x + scale·B·(A·x), where only A [rank,in] and B [out,rank]
/// are trained. Their leaves have the adapted one's name with ".lora_A.weight" and ".lora_B.weight" in place
/// of ".weight".
struct AdaptedWeight {
    std::string leaf;       ///< "model.layers.0.self_attn.q_proj.weight"
    std::int64_t rank = 0;  ///< r
    double scale = 1;       ///< alpha/r, or alpha/√r

    bool operator==(const AdaptedWeight&) const = default;
};

/// What is trained of a model whose other weights stay as they are.
struct Adapters {
    std::vector<AdaptedWeight> weights;       ///< in module order
    std::vector<std::string> trained_leaves;  ///< of the model itself, trained whole (modules_to_save)
    double dropout = 0;                       ///< share of an adapter's inputs that are dropped in training
    /// DoRA: rows of W + scale·B·A are scaled to trained lengths, the leaves ".lora_magnitude_vector".
    bool magnitudes = false;

    /// Otherwise the whole model is trained.
    bool any() const { return !weights.empty() || !trained_leaves.empty(); }
    bool operator==(const Adapters&) const = default;
};

}  // namespace drover
