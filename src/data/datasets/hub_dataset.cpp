#include "data/datasets/hub_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/sha256.h"
#include "data/datasets/dataset_folder.h"
#include "data/rows/row_format.h"
#include "hub/cache.h"
#include "hub/places.h"
#include "hub/snapshot.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Files that say which other files belong to the dataset.
bool is_description(const RepositoryFile& file) {
    const std::string name = fs::path(file.path).filename().string();
    return file.path == "README.md" || name == "state.json" || name == "dataset_dict.json" ||
           name == "dataset_info.json";
}

std::vector<RepositoryFile> descriptions(const RepositoryListing& listing) {
    std::vector<RepositoryFile> files;
    std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(files), is_description);
    return files;
}

/// A folder with the names of a dataset's files, of which only the descriptions have their content.
class Outline {
  public:
    Outline(const RepositoryListing& listing, const fs::path& snapshot) {
        const std::string random = unpredictable_bytes(8);
        folder_ = fs::temp_directory_path() /
                  ("drover-outline-" + hex_text({reinterpret_cast<const unsigned char*>(random.data()), 8}));
        for (const RepositoryFile& file : listing.files) {
            const fs::path path = folder_ / file.path;
            if (!is_description(file) && !known_format(path) && path.extension() != ".py") continue;
            fs::create_directories(path.parent_path());
            if (is_description(file) && fs::exists(snapshot / file.path))
                fs::copy_file(snapshot / file.path, path);
            else
                std::ofstream(path).close();
        }
        fs::create_directories(folder_);
    }
    ~Outline() {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
    Outline(const Outline&) = delete;
    Outline& operator=(const Outline&) = delete;

    const fs::path& folder() const { return folder_; }

  private:
    fs::path folder_;
};

/// The files of a config, chosen as they are chosen in a local folder.
std::vector<RepositoryFile> files_of_config(const RepositoryListing& listing, const fs::path& snapshot,
                                            const std::string& config, const Repository& dataset) {
    const Outline outline(listing, snapshot);
    std::vector<DatasetSplit> splits;
    try {
        splits = read_dataset_folder(outline.folder(), config);
    } catch (const Error& error) {
        std::string cause = error.cause();
        const std::string shown = outline.folder().string();
        for (auto at = cause.find(shown); at != std::string::npos; at = cause.find(shown, at))
            cause.replace(at, shown.size(), "the Hub's " + dataset.id);
        throw Error(cause, error.remedy());
    }
    std::vector<RepositoryFile> files = descriptions(listing);
    for (const DatasetSplit& split : splits)
        for (const fs::path& path : split.files)
            if (const RepositoryFile* file =
                    listing.find(path.lexically_relative(outline.folder()).generic_string()))
                files.push_back(*file);
    return files;
}

}  // namespace

std::optional<fs::path> find_cached_dataset(const Repository& dataset, const std::string& config) {
    const RepositoryCache cache(hub_cache_folder(), dataset);
    const auto snapshot = cache.snapshot();
    const auto commit = cache.commit();
    const auto listing = commit ? cache.listing(*commit) : std::nullopt;
    if (!snapshot || !listing || datasets_are_offline()) return snapshot;
    const std::vector<RepositoryFile> files = files_of_config(*listing, *snapshot, config, dataset);
    const bool complete = std::all_of(files.begin(), files.end(), [&](const RepositoryFile& file) {
        return fs::exists(*snapshot / file.path);
    });
    return complete ? snapshot : std::nullopt;
}

fs::path fetch_dataset(const Repository& dataset, const std::string& config, const std::string& token) {
    const RepositoryCache cache(hub_cache_folder(), dataset);
    HubSettings settings = HubSettings::from_environment(token);
    settings.offline = datasets_are_offline();
    if (settings.offline)
        throw HubError(HubError::Reason::offline,
                       "HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or HF_DATASETS_OFFLINE forbids the network.",
                       "Unset it, or name a local folder.");
    cache.prepare_locks();
    // The other processes of this machine wait here, and then find what they need.
    const FileLock lock(cache.lock("drover"), FileLock::Afterwards::left);
    HubClient client(std::move(settings));
    if (const auto commit = cache.commit(); commit && cache.listing(*commit))
        if (const auto snapshot = find_cached_dataset(dataset, config)) return *snapshot;
    const RepositoryListing listing = client.list(dataset);
    const std::vector<RepositoryFile> texts = descriptions(listing);
    const fs::path snapshot = fetch_to_cache(client, cache, listing, texts);
    return fetch_to_cache(client, cache, listing, files_of_config(listing, snapshot, config, dataset));
}

}  // namespace drover
