#pragma once

#include <filesystem>

#include "core/json.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace drover {

/// Writes the files that accompany saved weights: config.json, generation_config.json, the tokenizer's files
/// and training_args.json (`recorded_settings`).
void write_model_texts(const std::filesystem::path& folder, const ModelConfig& config, DType saved_dtype,
                       const Json& generation, const Tokenizer& tokenizer, const Json& recorded_settings);

}  // namespace drover
