#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"

namespace drover {

/// How positions become angles: `rope_theta` with `rope_scaling` (v4 files) or `rope_parameters` (v5 files).
struct RopeConfig {
    enum class Type : std::uint8_t { plain, linear, dynamic, llama3, yarn };
    Type type = Type::plain;
    double theta = 10000;
    double factor = 1;
    std::int64_t original_max_position_embeddings = 0;  ///< 0: not given
    double low_frequency_factor = 1;                    ///< llama3
    double high_frequency_factor = 4;                   ///< llama3
    double beta_fast = 32;                              ///< yarn
    double beta_slow = 1;                               ///< yarn
    double mscale = 0;                                  ///< yarn, 0: not given
    double mscale_all_dim = 0;                          ///< yarn, 0: not given
    double attention_factor = 0;                        ///< yarn, 0: derived
    bool truncate = true;                               ///< yarn
};

/// The mixture of experts of a Mixtral model.
struct MoeConfig {
    std::int64_t experts = 0;   ///< E; 0: the feed-forward is dense
    std::int64_t chosen = 2;    ///< k, experts per token
    bool balance_loss = false;  ///< `output_router_logits`
    double balance_coefficient = 0.001;
    double jitter =
        0;  ///< `router_jitter_noise`: in training, tokens are multiplied by U(1 − jitter, 1 + jitter)
};

/// A model's config.json: the keys that the engine uses, checked, and the whole original file. What depends
/// on its model_type is in model/families/.
struct ModelConfig {
    std::string model_type = "llama";
    std::int64_t vocab_size = 32000;
    std::int64_t hidden_size = 4096;
    std::int64_t intermediate_size = 11008;
    std::int64_t num_hidden_layers = 32;
    std::int64_t num_attention_heads = 32;
    std::int64_t num_key_value_heads = 32;
    std::int64_t head_dim = 128;
    std::int64_t max_position_embeddings = 2048;
    double initializer_range = 0.02;
    double rms_norm_eps = 1e-6;
    bool tie_word_embeddings = false;
    bool qkv_bias = false;
    bool attention_output_bias = false;
    bool mlp_bias = false;
    bool head_norms = false;         ///< each head of q and k is normed before the rotation
    std::int64_t pad_token_id = -1;  ///< −1: none
    std::int64_t bos_token_id = -1;
    std::vector<std::int64_t> eos_token_ids;  ///< empty: none
    std::int64_t sliding_window = 0;          ///< 0: none
    std::vector<bool> sliding_layers;         ///< by block, whether it slides; empty: all do
    RopeConfig rope;
    MoeConfig moe;
    std::optional<DType> dtype;  ///< `torch_dtype` or `dtype`
    /// Rows that the embedding had before resize_vocabulary(); 0: it was not resized.
    std::int64_t rows_before_resize = 0;
    /// It was tied until separate_head(): the head's first values are the embedding's.
    bool head_from_embedding = false;

    /// Everything the file said, unknown keys included.
    Json json;

    /// Error (naming `where` and the key) unless the text is a config that can be trained.
    static ModelConfig parse(std::string_view text, std::string_view where);
    /// A config.json, or a folder that holds one.
    static ModelConfig from_path(const std::filesystem::path& path);

    /// The file to save beside a model whose weights have `saved_dtype`, as transformers 5.x writes it: every
    /// key of the class, keys that all classes share only when they differ from their defaults, unknown keys
    /// unchanged; sorted, two spaces, final newline.
    std::string saved_text(DType saved_dtype) const;

    /// Enlarges the embedding and the head to `tokens` rows. The existing rows are then loaded or drawn as
    /// before, and the others added as transformers does.
    void resize_vocabulary(std::int64_t tokens);

    /// The head of a tied model becomes a weight of its own, which starts as a copy of the embedding. Does
    /// nothing to other models.
    void separate_head();

    bool has_experts() const { return moe.experts > 0; }
    std::int64_t query_columns() const { return num_attention_heads * head_dim; }
    std::int64_t key_value_columns() const { return num_key_value_heads * head_dim; }
    /// The window of a block's attention; 0: all of the past.
    std::int64_t window_of(int block) const {
        return sliding_layers.empty() || sliding_layers[static_cast<std::size_t>(block)] ? sliding_window : 0;
    }
};

}  // namespace drover
