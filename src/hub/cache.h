#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hub/repository.h"

namespace drover {

/// A repository's folder in a cache that is shared with huggingface_hub:
///
///     models--owner--name/refs/<revision>              text: a commit
///                         snapshots/<commit>/<path>    → ../../blobs/<hash>
///                         blobs/<hash>                 the files' contents
///                         trees/<commit>.json          the list of files of a commit
///     .locks/models--owner--name/<hash>.lock           held while that blob is made
class RepositoryCache {
  public:
    /// `cache` is the folder of all repositories. Error for a revision that leads out of it.
    RepositoryCache(std::filesystem::path cache, Repository repository);

    const Repository& repository() const { return repository_; }
    std::filesystem::path folder() const { return cache_ / repository_.folder_name(); }
    std::filesystem::path snapshot(std::string_view commit) const;
    std::filesystem::path blob(std::string_view hash) const;
    std::filesystem::path lock(std::string_view name) const;

    /// The commit that the revision was when it was last fetched; the revision itself when it is a commit.
    std::optional<std::string> commit() const;
    /// The folder of that commit's files, if there is one.
    std::optional<std::filesystem::path> snapshot() const;
    /// The files that the commit has on the Hub, where that is known.
    std::optional<RepositoryListing> listing(std::string_view commit) const;

    /// Makes the folder of locks.
    void prepare_locks() const;
    /// Makes the folders of blobs, locks and this commit.
    void prepare(std::string_view commit) const;
    void remember_commit(std::string_view commit) const;
    void remember_listing(const RepositoryListing& listing) const;
    /// Makes a file of a snapshot from its blob: a link, or the blob itself when `links` is false or the file
    /// system has none.
    void place(std::string_view commit, const RepositoryFile& file, bool links) const;

  private:
    std::filesystem::path cache_;
    Repository repository_;
};

/// As RepositoryCache::snapshot(), for any text as id: nothing where it is no id.
std::optional<std::filesystem::path> find_hub_snapshot(const std::filesystem::path& cache,
                                                       const Repository& repository);

/// Writes a small file that several processes may write at once: each writes one of its own and renames it.
void write_shared_file(const std::filesystem::path& path, std::string_view content);

/// A name beside `path` that no other process uses.
std::filesystem::path unique_beside(const std::filesystem::path& path, std::string_view ending);

/// Error that names a file or folder of the cache that cannot be made.
[[noreturn]] void fail_to_write(const std::filesystem::path& path, std::string_view reason);

}  // namespace drover
