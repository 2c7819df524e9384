#pragma once

#include <string>

#include "model/config.h"

namespace drover {

/// generation_config.json for a model without one of its own: its special tokens, as Hugging Face derives
/// them from the config. Two spaces, sorted keys, final newline.
std::string generation_config_text(const ModelConfig& config);

}  // namespace drover
