#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "hub/cache.h"
#include "hub/client.h"

namespace drover {

/// Fetches files of a repository into the cache, several at a time, with progress on standard error, and
/// returns the snapshot's folder. Only what is missing is fetched; if one fails, its error is thrown and the
/// others are kept.
std::filesystem::path fetch_to_cache(HubClient& client, const RepositoryCache& cache,
                                     const RepositoryListing& listing, std::span<const RepositoryFile> files);

/// The same into a folder of its own, without the cache. Files that are there with the right content stay;
/// others are replaced.
void fetch_to_folder(HubClient& client, const Repository& repository, const RepositoryListing& listing,
                     std::span<const RepositoryFile> files, const std::filesystem::path& folder);

/// The files whose paths match one of the patterns ("*" and "?" match "/" too); all if there are none. A
/// pattern that ends with "/" means everything below that folder.
std::vector<RepositoryFile> matching_files(const RepositoryListing& listing,
                                           std::span<const std::string> include,
                                           std::span<const std::string> exclude = {});

}  // namespace drover
