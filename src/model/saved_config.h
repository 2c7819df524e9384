#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace drover {

struct ModelConfig;

/// The release whose file formats we follow; it is written into the files.
inline constexpr const char* transformers_version = "5.15.1";

/// The config with the changes of --config_overrides, "key=value,key=value". As in transformers, keys must
/// exist, a value has the type of the old one, and what was derived from the old ones (head_dim,
/// num_key_value_heads) stays: UsageError otherwise, and Error when the result is not a config that can be
/// trained.
ModelConfig with_config_overrides(const ModelConfig& config, std::string_view overrides);

/// The config with another number of layers or another width, as run_llama_nxd.py takes them; below 1 the
/// config's. The numbers of heads and intermediate_size stay. head_dim follows the width, unless the config
/// has one that is not the width over the heads. Error when the result is not a config that can be trained.
ModelConfig with_sizes(const ModelConfig& config, std::int64_t layers, std::int64_t width);

/// The config with this max_position_embeddings.
ModelConfig with_positions(const ModelConfig& config, std::int64_t positions);

/// generation_config.json as transformers derives it from a model's config.
Json derived_generation_config(const ModelConfig& config);
/// The text to save: sorted keys, two spaces, final newline. `generation` was derived, or read from a model's
/// folder.
std::string generation_config_text(Json generation);

/// Ids of a tokenizer; absent when it has no such token.
struct SpecialTokenIds {
    std::optional<std::int64_t> bos, eos, pad;
};

/// As the Trainer does before training: where the tokenizer's ids differ, they replace those in config.json
/// and generation_config.json; the ends of generation become a list, with the tokenizer's first. Changes what
/// is saved, not how the model computes. Returns the keys that changed.
std::vector<std::string> align_special_tokens(const SpecialTokenIds& tokens, ModelConfig& config,
                                              Json& generation);

}  // namespace drover
