#include "hub/cache_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/text_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// "model owner/name" of "models--owner--name"; empty for other folders.
std::string name_of_folder(const std::string& folder) {
    for (const std::string kind : {"model", "dataset", "space"}) {
        const std::string start = kind + "s--";
        if (!folder.starts_with(start)) continue;
        std::string id = folder.substr(start.size());
        if (const std::size_t at = id.find("--"); at != std::string::npos) id.replace(at, 2, "/");
        return fmt::format("{} {}", kind, id);
    }
    return {};
}

std::uint64_t size_of(const fs::path& path) {
    std::error_code unknown;
    const std::uint64_t size = fs::file_size(path, unknown);
    return unknown ? 0 : size;
}

/// Everything in a folder that is there now; nothing if it is not.
std::vector<fs::directory_entry> entries(const fs::path& folder) {
    std::error_code ignored;
    std::vector<fs::directory_entry> found;
    for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored))
        found.push_back(*it);
    return found;
}

std::vector<fs::directory_entry> entries_below(const fs::path& folder) {
    std::error_code ignored;
    std::vector<fs::directory_entry> found;
    for (fs::recursive_directory_iterator it(folder, ignored), end; !ignored && it != end;
         it.increment(ignored))
        found.push_back(*it);
    return found;
}

/// Whether a file or folder has changed in this time, or is gone. Of a folder what counts is which files it
/// has.
bool is_recent(const fs::path& path, fs::file_time_type now, std::chrono::seconds age) {
    std::error_code unknown;
    const auto changed = fs::last_write_time(path, unknown);
    return unknown || now - changed < age;
}

/// What of a repository nothing refers to.
struct Unused {
    std::vector<fs::path> snapshots, files;
    std::uint64_t bytes = 0;
};

Unused find_unused(const fs::path& repository, std::chrono::seconds age) {
    Unused unused;
    std::set<std::string> named;
    for (const fs::directory_entry& entry : entries_below(repository / "refs"))
        if (entry.is_regular_file()) {
            std::string commit = read_text_file(entry.path());
            commit.erase(commit.find_last_not_of(" \r\n") + 1);
            named.insert(commit);
        }
    std::set<std::string> used;
    const auto now = fs::file_time_type::clock::now();
    for (const fs::directory_entry& snapshot : entries(repository / "snapshots")) {
        const std::vector<fs::directory_entry> files = entries_below(snapshot.path());
        // A commit that was asked for by its hash has no name: it is kept if nothing else is. One that is
        // being fetched gets its name last.
        const bool is_kept = named.empty() || named.contains(snapshot.path().filename().string()) ||
                             is_recent(snapshot.path(), now, age) ||
                             std::ranges::any_of(files, [&](const fs::directory_entry& file) {
                                 std::error_code unknown;
                                 return !file.is_symlink(unknown) && file.is_directory(unknown) &&
                                        is_recent(file.path(), now, age);
                             });
        if (!is_kept) unused.snapshots.push_back(snapshot.path());
        for (const fs::directory_entry& file : files) {
            if (file.is_symlink() && is_kept)
                used.insert(fs::read_symlink(file.path()).filename().string());
            else if (!file.is_symlink() && file.is_regular_file() && !is_kept)
                unused.bytes += size_of(file.path());
        }
    }
    for (const fs::directory_entry& blob : entries(repository / "blobs")) {
        // A blob without a link may be one whose link is made next.
        if (used.contains(blob.path().filename().string()) || is_recent(blob.path(), now, age)) continue;
        unused.files.push_back(blob.path());
        unused.bytes += size_of(blob.path());
    }
    return unused;
}

/// Holds a repository's lock if nobody else does.
class TriedLock {
  public:
    explicit TriedLock(const fs::path& path) {
        std::error_code ignored;
        fs::create_directories(path.parent_path(), ignored);
        descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        held_ = descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    }
    ~TriedLock() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    TriedLock(const TriedLock&) = delete;
    TriedLock& operator=(const TriedLock&) = delete;

    bool held() const { return held_; }

  private:
    int descriptor_ = -1;
    bool held_ = false;
};

/// Where the locks of a repository and of its blobs are.
fs::path locks_of(const fs::path& cache, const fs::path& repository) {
    return cache / ".locks" / repository.filename();
}

/// Whether a process holds the lock of a blob. huggingface_hub knows no other locks.
bool blob_is_being_fetched(const fs::path& locks) {
    return std::ranges::any_of(entries(locks), [](const fs::directory_entry& lock) {
        return lock.path().filename() != "drover.lock" && lock.path().extension() == ".lock" &&
               !TriedLock(lock.path()).held();
    });
}

}  // namespace

std::vector<CachedRepository> list_cache(const fs::path& cache) {
    std::vector<CachedRepository> list;
    for (const fs::directory_entry& entry : entries(cache)) {
        CachedRepository repository{.name = name_of_folder(entry.path().filename().string()),
                                    .folder = entry.path()};
        if (repository.name.empty() || !entry.is_directory()) continue;
        for (const fs::directory_entry& file : entries_below(entry.path())) {
            if (file.is_symlink() || !file.is_regular_file()) continue;
            repository.bytes += size_of(file.path());
            std::error_code unknown;
            const auto changed = fs::last_write_time(file.path(), unknown);
            if (!unknown) repository.last_change = std::max(repository.last_change, changed);
        }
        repository.snapshots = entries(entry.path() / "snapshots").size();
        repository.unused_bytes = find_unused(entry.path(), std::chrono::hours(1)).bytes;
        list.push_back(std::move(repository));
    }
    std::sort(list.begin(), list.end(),
              [](const CachedRepository& a, const CachedRepository& b) { return a.name < b.name; });
    return list;
}

std::uint64_t prune_cache(const fs::path& cache, std::chrono::seconds age) {
    std::uint64_t freed = 0;
    for (const CachedRepository& repository : list_cache(cache)) {
        const fs::path locks = locks_of(cache, repository.folder);
        const TriedLock lock(locks / "drover.lock");
        if (!lock.held() || blob_is_being_fetched(locks)) continue;
        const Unused unused = find_unused(repository.folder, age);
        std::error_code failure;
        for (const fs::path& snapshot : unused.snapshots) fs::remove_all(snapshot, failure);
        for (const fs::path& file : unused.files) fs::remove(file, failure);
        if (failure)
            throw Error(
                fmt::format("{} cannot be cleared: {}.", repository.folder.string(), failure.message()),
                "Check the folder's permissions.");
        freed += unused.bytes;
    }
    return freed;
}

bool remove_from_cache(const fs::path& cache, const std::string& name) {
    for (const CachedRepository& repository : list_cache(cache)) {
        if (repository.name != name) continue;
        const fs::path locks = locks_of(cache, repository.folder);
        const TriedLock lock(locks / "drover.lock");
        if (!lock.held() || blob_is_being_fetched(locks))
            throw Error(fmt::format("The {} is being fetched by another process.", name),
                        "Wait until it is done.");
        std::error_code failure;
        fs::remove_all(repository.folder, failure);
        if (failure)
            throw Error(
                fmt::format("{} cannot be removed: {}.", repository.folder.string(), failure.message()),
                "Check the folder's permissions.");
        return true;
    }
    return false;
}

}  // namespace drover
