#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/datasets/resolve_dataset.h"

namespace drover {

/// The splits of a folder in a layout that the datasets library accepts: with `configs:` in README.md, or
/// with split names in the names of files or folders, or a folder written by save_to_disk. Error when there
/// is no such config, or a split's files are missing.
std::vector<DatasetSplit> read_dataset_folder(const std::filesystem::path& folder, const std::string& config);

/// Error when one of a set of files numbered "…-00000-of-00003…" is missing.
void check_complete(const std::vector<std::filesystem::path>& files);

}  // namespace drover
