#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace drover {

/// What a cache holds of one repository.
struct CachedRepository {
    std::string name;  ///< "model owner/name" or "dataset owner/name"
    std::filesystem::path folder;
    std::uint64_t bytes = 0;         ///< of its blobs, and of files that are not links
    std::size_t snapshots = 0;       ///< commits
    std::uint64_t unused_bytes = 0;  ///< what prune_cache() would remove of it
    std::filesystem::file_time_type last_change = std::filesystem::file_time_type::min();
};

/// The repositories of a cache, by name. Error when it cannot be read; none when there is no such folder.
std::vector<CachedRepository> list_cache(const std::filesystem::path& cache);

/// Removes snapshots of commits that no branch and no tag of the cache names any more, blobs that no snapshot
/// uses, and pieces of downloads that nobody continued for `age`. Returns the bytes that were freed.
/// Repositories that a process fetches just now are left alone.
std::uint64_t prune_cache(const std::filesystem::path& cache,
                          std::chrono::seconds age = std::chrono::hours(1));

/// Removes one repository, "model owner/name" in `name`'s words. False when the cache does not have it.
bool remove_from_cache(const std::filesystem::path& cache, const std::string& name);

}  // namespace drover
