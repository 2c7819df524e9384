#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/client.h"
#include "hub/repository.h"

namespace drover {

/// The snapshot of a dataset in the Hub's cache. Nothing when there is none; nor, where the network may be
/// used, when the cache has the list of the dataset's files and this config needs one that is not there.
std::optional<std::filesystem::path> find_cached_dataset(const Repository& dataset,
                                                         const std::string& config);

/// Fetches the files of one config of a dataset (all its splits) into the Hub's cache, and returns the
/// snapshot. One process of a machine fetches while the others wait. HubError when it cannot be had; Error
/// when there is no such config.
std::filesystem::path fetch_dataset(const Repository& dataset, const std::string& config,
                                    const std::string& token);

}  // namespace drover
