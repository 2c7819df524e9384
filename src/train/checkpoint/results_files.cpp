#include "train/checkpoint/results_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/python_json.h"
#include "core/python_text.h"
#include "core/text_file.h"

namespace drover {
namespace {

/// H:MM:SS.cc, hundredths cut off.
std::string time_text(double seconds) {
    const double whole = std::trunc(seconds);
    return fmt::format("{}.{:02}", python_timedelta(static_cast<long long>(whole)),
                       static_cast<int>(std::abs(seconds - whole) * 100));
}

std::string shown(const std::string& key, const Json& value) {
    if (key.find("_mem_") != std::string::npos) return fmt::format("{}MB", value.get<std::int64_t>() >> 20);
    if (key.find("_runtime") != std::string::npos) return time_text(value.get<double>());
    if (key == "total_flos")
        return fmt::format("{}GF",
                           static_cast<std::int64_t>(std::trunc(value.get<double>() / double{1 << 30})));
    if (value.is_number_float()) return python_float(python_round(value.get<double>(), 4));
    return value.is_string() ? value.get<std::string>() : python_repr(value);
}

}  // namespace

void save_metrics(const std::filesystem::path& folder, std::string_view split, const Json& metrics) {
    std::filesystem::create_directories(folder);
    write_file_atomically(folder / fmt::format("{}_results.json", split), python_json(metrics, 4));
    const std::filesystem::path all_path = folder / "all_results.json";
    Json all = std::filesystem::exists(all_path)
                   ? parse_python_json(read_text_file(all_path), all_path.string())
                   : Json::object();
    for (const auto& [key, value] : metrics.items()) all[key] = value;
    write_file_atomically(all_path, python_json(all, 4));
}

std::string metrics_table(std::string_view split, const Json& metrics) {
    std::map<std::string, std::string> lines;  // sorted by key
    std::size_t key_width = 0, value_width = 0;
    for (const auto& [key, value] : metrics.items()) {
        const std::string& text = lines[key] = shown(key, value);
        key_width = std::max(key_width, key.size());
        value_width = std::max(value_width, text.size());
    }
    std::string table = fmt::format("***** {} metrics *****\n", split);
    for (const auto& [key, text] : lines)
        table += fmt::format("  {:<{}} = {:>{}}\n", key, key_width, text, value_width);
    return table;
}

}  // namespace drover
