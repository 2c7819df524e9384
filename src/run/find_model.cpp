#include "run/find_model.h"

#include <fmt/format.h>

#include "core/error.h"
#include "data/datasets/hub_cache.h"

namespace drover {

std::filesystem::path find_pretrained(const std::string& name, std::string_view what,
                                      const std::filesystem::path& cache, std::string_view revision) {
    if (std::filesystem::exists(name)) return name;
    const std::filesystem::path folder = cache.empty() ? hub_cache_folder() : cache;
    if (const auto snapshot = find_hub_snapshot(folder, "models", name, revision)) return *snapshot;
    throw Error(
        fmt::format(
            "{} is \"{}\": there is no such file or folder, and the Hugging Face cache {} does not hold it.",
            what, name, folder.string()),
        "Give a local path, or download it once with `hf download`.");
}

}  // namespace drover
