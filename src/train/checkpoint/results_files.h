#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"

namespace drover {

/// Writes `<split>_results.json` and adds the metrics to all_results.json, keeping its entries for other
/// splits.
void save_metrics(const std::filesystem::path& folder, std::string_view split, const Json& metrics);

/// The table that Hugging Face prints: "***** train metrics *****" and one line per metric, sorted. Ends in a
/// newline.
std::string metrics_table(std::string_view split, const Json& metrics);

}  // namespace drover
