#include "app/example_configs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/this_process.h"
#include "model/config.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The first of the folders that exists; empty if none does.
fs::path configs_folder() {
    std::error_code ignored;
    const fs::path own = program_path().parent_path();
    for (const fs::path& folder : {own.parent_path() / "share/drover/configs", own / "configs"})
        if (fs::is_directory(folder, ignored)) return folder;
    return {};
}

std::string known_names(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

ModelConfig named_config(const std::string& name) {
    const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json") || fs::exists(name);
    if (is_path) return ModelConfig::from_path(name);
    const fs::path folder = configs_folder();
    const fs::path file = folder / (name + ".json");
    if (!folder.empty() && fs::exists(file)) return ModelConfig::from_path(file);
    const std::string known = folder.empty() ? "" : known_names(folder);
    throw UsageError(fmt::format("--model is \"{}\", which is neither a file nor a known name.", name),
                     known.empty() ? "Give the path of a config.json."
                                   : fmt::format("Give the path of a config.json, or one of {}.", known));
}

}  // namespace drover
