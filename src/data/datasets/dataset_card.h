#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// One entry of `configs:` in the front matter of a dataset's README.md.
struct CardConfig {
    struct Files {
        std::string split;
        std::vector<std::string> patterns;
    };

    std::string name = "default";
    bool is_default = false;
    std::vector<Files> data_files;
    std::string data_dir;   ///< folder whose file names give the splits, when there are no data_files
    std::string delimiter;  ///< of CSV files, if given
    std::string field;      ///< of JSON files, if given
};

/// The configs of a README.md; empty when it lists none. Error for unknown settings, because they could
/// select other rows, and for unsupported YAML.
std::vector<CardConfig> read_dataset_card(const std::filesystem::path& readme);

}  // namespace drover
