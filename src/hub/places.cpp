#include "hub/places.h"

#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path home_folder() {
    const char* home = std::getenv("HOME");
    return home == nullptr ? fs::path() : fs::path(home);
}

/// A folder that a variable names; a leading ~ is the user's home.
fs::path folder_of_variable(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) return {};
    const std::string_view text(value);
    if (text == "~") return home_folder();
    return text.starts_with("~/") ? home_folder() / text.substr(2) : fs::path(text);
}

}  // namespace

fs::path hf_home() {
    if (const fs::path home = folder_of_variable("HF_HOME"); !home.empty()) return home;
    if (const fs::path cache = folder_of_variable("XDG_CACHE_HOME"); !cache.empty())
        return cache / "huggingface";
    return home_folder() / ".cache" / "huggingface";
}

fs::path hub_cache_folder() {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"})
        if (const fs::path folder = folder_of_variable(name); !folder.empty()) return folder;
    return hf_home() / "hub";
}

fs::path datasets_cache_folder() {
    if (const fs::path folder = folder_of_variable("HF_DATASETS_CACHE"); !folder.empty()) return folder;
    return hf_home() / "datasets";
}

fs::path token_file() {
    if (const fs::path file = folder_of_variable("HF_TOKEN_PATH"); !file.empty()) return file;
    return hf_home() / "token";
}

}  // namespace drover
