#include "data/datasets/hub_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <initializer_list>

#include "core/error.h"
#include "core/path_inside.h"
#include "core/text_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path() : fs::path(value);
}

fs::path hf_home() {
    if (const fs::path home = variable("HF_HOME"); !home.empty()) return home;
    if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface";
    return variable("HOME") / ".cache" / "huggingface";
}

}  // namespace

fs::path hub_cache_folder() {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
        if (const fs::path folder = variable(name); !folder.empty()) return folder;
    return hf_home() / "hub";
}

fs::path datasets_cache_folder() {
    if (const fs::path folder = variable("HF_DATASETS_CACHE"); !folder.empty()) return folder;
    return hf_home() / "datasets";
}

std::optional<fs::path> find_hub_snapshot(const fs::path& cache, std::string_view kind, std::string_view id,
                                          std::string_view revision) {
    std::string name = fmt::format("{}--{}", kind, id);
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    if (!is_inner_name(name)) return std::nullopt;
    if (!is_inner_path(revision))
        throw Error(fmt::format("The revision \"{}\" of {} leads out of the cache.", revision, id),
                    "Name a branch, a tag or a commit.");
    const fs::path repository = cache / name;
    std::error_code ignored;
    std::string commit(revision);
    if (const fs::path reference = repository / "refs" / revision; fs::is_regular_file(reference, ignored)) {
        commit = read_text_file(reference);
        commit.erase(commit.find_last_not_of(" \r\n") + 1);
        if (!commit.empty() && !is_inner_name(commit))
            throw Error(fmt::format("{} names \"{}\", which is not a commit.", reference.string(), commit),
                        "Fetch the repository again; the file was damaged or changed.");
    }
    const fs::path snapshot = repository / "snapshots" / commit;
    if (commit.empty() || !fs::is_directory(snapshot, ignored)) return std::nullopt;
    return snapshot;
}

}  // namespace drover
