#pragma once

#include "core/json.h"
#include "model/config.h"
#include "model/config_reader.h"

/// Keys about sliding windows that several families share.
namespace drover {

/// Of classes whose config.json may leave sliding_window out.
inline constexpr std::int64_t default_window = 4096;

/// sliding_window; 0 if the file says null.
std::int64_t read_window(const ConfigReader& reader, std::int64_t fallback);

/// As Qwen2 and Qwen3 have it: use_sliding_window, sliding_window, max_window_layers and layer_types.
void read_layer_windows(const ConfigReader& reader, ModelConfig& config);
/// The values of these keys that transformers saves.
Json saved_layer_windows(const ModelConfig& config);
/// transformers forgets a window that is not used.
Json overwritten_layer_windows(const ModelConfig& config);

}  // namespace drover
