#include "hub/find_model.h"

#include <fmt/format.h>

#include <optional>

#include "core/console.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/text_file.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/places.h"
#include "hub/snapshot.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path fetch_model(HubClient& client, const RepositoryCache& cache, ModelParts parts) {
    const RepositoryListing listing = client.list(cache.repository());
    std::vector<RepositoryFile> files = model_texts(listing);
    if (parts == ModelParts::weights) {
        std::vector<RepositoryFile> weights = model_weights(listing);
        std::erase_if(weights, [&](const RepositoryFile& file) {
            if (!is_index(file)) return false;
            const fs::path snapshot = fetch_to_cache(client, cache, listing, {&file, 1});
            const std::vector<RepositoryFile> shards =
                shards_of_index(listing, read_text_file(snapshot / file.path),
                                fmt::format("{} of the {}", file.path, cache.repository().shown()));
            files.insert(files.end(), shards.begin(), shards.end());
            return true;
        });
        files.insert(files.end(), weights.begin(), weights.end());
    }
    if (files.empty())
        throw HubError(
            HubError::Reason::missing_file,
            fmt::format("The {} has none of the files that a model consists of.", cache.repository().shown()),
            "Check the name.");
    return fetch_to_cache(client, cache, listing, files);
}

}  // namespace

fs::path find_hub_model(const ModelRequest& request) {
    const RepositoryCache cache(
        request.cache.empty() ? hub_cache_folder() : request.cache,
        {.kind = RepositoryKind::model, .id = request.id, .revision = request.revision});
    const auto complete = [&]() -> std::optional<fs::path> {
        const auto snapshot = cache.snapshot();
        return snapshot && has_model_parts(*snapshot, request.parts) ? snapshot : std::nullopt;
    };
    if (const auto snapshot = complete()) return *snapshot;
    HubSettings settings = HubSettings::from_environment(request.token);
    const auto incomplete = cache.snapshot();
    if (settings.offline && incomplete) return *incomplete;
    if (settings.offline)
        throw HubError(HubError::Reason::offline,
                       fmt::format("The {} is not in the cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE "
                                   "forbids the network.",
                                   cache.repository().shown()),
                       "Unset it, or name a local folder.");
    try {
        cache.prepare_locks();
        // The other processes of this machine wait here, and then find what they need.
        const FileLock lock(cache.lock("drover"), FileLock::Afterwards::left);
        if (const auto snapshot = complete()) return *snapshot;
        HubClient client(std::move(settings));
        return fetch_model(client, cache, request.parts);
    } catch (const HubError& error) {
        if (!incomplete || error.reason() != HubError::Reason::unreachable) throw;
        print_log(stderr, "{} Using what the cache has.\n", error.cause());
        return *incomplete;
    }
}

}  // namespace drover
