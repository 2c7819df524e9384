#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else <HF home>/hub.
std::filesystem::path hub_cache_folder();

/// HF_DATASETS_CACHE, else <HF home>/datasets.
std::filesystem::path datasets_cache_folder();

/// The folder in `cache` that holds a repository's files: kind "datasets" or "models", id "owner/name" or
/// "name". `revision` is a branch, a tag or a commit; nothing if it is not in the cache.
std::optional<std::filesystem::path> find_hub_snapshot(const std::filesystem::path& cache,
                                                       std::string_view kind, std::string_view id,
                                                       std::string_view revision);

}  // namespace drover
