#pragma once

#include <filesystem>

/// Where Hugging Face's programs keep things, by their environment variables.
namespace drover {

/// HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::filesystem::path hf_home();

/// HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else TRANSFORMERS_CACHE, else <HF home>/hub.
std::filesystem::path hub_cache_folder();

/// HF_DATASETS_CACHE, else <HF home>/datasets.
std::filesystem::path datasets_cache_folder();

/// HF_TOKEN_PATH, else <HF home>/token.
std::filesystem::path token_file();

}  // namespace drover
