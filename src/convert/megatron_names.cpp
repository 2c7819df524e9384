#include "convert/megatron_names.h"

#include <array>
#include <utility>

namespace drover {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

/// Megatron's and Hugging Face's; the first that fits counts.
constexpr std::array<Pair, 4> beginnings = {{
    {"language_model.embedding.word_embeddings.", "model.embed_tokens."},
    {"language_model.encoder.final_layernorm.", "model.norm."},
    {"language_model.output_layer.", "lm_head."},
    {"language_model.encoder.", "model."},
}};
constexpr std::array<Pair, 7> modules = {{
    {".self_attention.core_attention.rotary_emb.", ".self_attn.rotary_emb."},
    {".self_attention.query_key_value.", ".self_attn.qkv_proj."},
    {".self_attention.query.", ".self_attn.q_proj."},
    {".self_attention.key_value.", ".self_attn.key_value."},
    {".self_attention.dense.", ".self_attn.o_proj."},
    {".mlp.dense_h_to_4h.", ".mlp.gate_up_proj."},
    {".mlp.dense_4h_to_h.", ".mlp.down_proj."},
}};

}  // namespace

std::string to_megatron_name(std::string_view name) {
    std::string result(name);
    for (const auto& [megatron, other] : beginnings)
        if (name.starts_with(other)) {
            result.replace(0, other.size(), megatron);
            break;
        }
    for (const auto& [megatron, other] : modules)
        if (const auto at = result.find(other); at != std::string::npos) {
            result.replace(at, other.size(), megatron);
            break;
        }
    return result;
}

std::string from_megatron_name(std::string_view name) {
    std::string result(name);
    if (!name.starts_with("language_model.")) return result;
    for (const auto& [megatron, other] : beginnings)
        if (name.starts_with(megatron)) {
            result.replace(0, megatron.size(), other);
            break;
        }
    for (const auto& [megatron, other] : modules)
        if (const auto at = result.find(megatron); at != std::string::npos) {
            result.replace(at, megatron.size(), other);
            break;
        }
    return result;
}

}  // namespace drover
