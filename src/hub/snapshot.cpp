#include "hub/snapshot.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/number_text.h"
#include "hub/blob_hash.h"
#include "hub/download.h"
#include "hub/transfer_progress.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Connections at a time, as huggingface_hub has them.
constexpr std::size_t most_connections = 8;

void check_space(const fs::path& folder, std::span<const RepositoryFile> missing) {
    std::uint64_t needed = 0;
    for (const RepositoryFile& file : missing) needed += file.size;
    std::error_code unknown;
    const fs::space_info space = fs::space(folder, unknown);
    if (!unknown && space.available < needed)
        throw Error(fmt::format("{} are to be fetched, but the disk of {} has only {} left.",
                                bytes_text(needed), folder.string(), bytes_text(space.available)),
                    "Make room, or name another folder with HF_HOME.");
}

/// Runs `fetch` for every file, several at a time; the first error stops the others.
template <class Fetch>
void fetch_all(std::span<const RepositoryFile> files, TransferProgress& progress, Fetch&& fetch) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_access;
    // Large files first, so that none of them is alone at the end.
    std::vector<const RepositoryFile*> order;
    for (const RepositoryFile& file : files) order.push_back(&file);
    std::stable_sort(order.begin(), order.end(),
                     [](const RepositoryFile* a, const RepositoryFile* b) { return a->size > b->size; });
    const auto work = [&] {
        for (std::size_t i = next++; i < order.size() && !failed; i = next++) {
            try {
                fetch(*order[i], [&](std::int64_t bytes) {
                    progress.add(bytes);
                    return !failed.load();
                });
                progress.file_done();
            } catch (...) {
                const std::lock_guard hold(error_access);
                if (!failed.exchange(true)) error = std::current_exception();
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min(most_connections, files.size()); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
    progress.finish();
}

std::uint64_t bytes_of(std::span<const RepositoryFile> files) {
    std::uint64_t bytes = 0;
    for (const RepositoryFile& file : files) bytes += file.size;
    return bytes;
}

void make_parents(const fs::path& file) {
    std::error_code failure;
    fs::create_directories(file.parent_path(), failure);
    if (failure) fail_to_write(file.parent_path(), failure.message());
}

bool has_content(const fs::path& path, const RepositoryFile& file) {
    std::error_code unknown;
    if (!fs::is_regular_file(path, unknown) || fs::file_size(path, unknown) != file.size) return false;
    BlobHash hash(file.hash, file.size);
    return add_file(hash, path, file.size) && hash.matches();
}

}  // namespace

fs::path fetch_to_cache(HubClient& client, const RepositoryCache& cache, const RepositoryListing& listing,
                        std::span<const RepositoryFile> files) {
    cache.prepare(listing.commit);
    cache.remember_listing(listing);
    const fs::path snapshot = cache.snapshot(listing.commit);
    std::vector<RepositoryFile> missing;
    for (const RepositoryFile& file : files) {
        std::error_code ignored;
        if (fs::exists(snapshot / file.path, ignored)) continue;
        if (fs::exists(cache.blob(file.hash), ignored))
            cache.place(listing.commit, file, client.settings().links);
        else
            missing.push_back(file);
    }
    if (!missing.empty()) {
        check_space(cache.folder(), missing);
        TransferProgress progress(fmt::format("Fetching {}", cache.repository().id), missing.size(),
                                  bytes_of(missing), client.settings().shows_progress);
        fetch_all(missing, progress, [&](const RepositoryFile& file, const ArrivedBytes& arrived) {
            const fs::path blob = cache.blob(file.hash);
            download_file(client,
                          {.repository = cache.repository(),
                           .file = file,
                           .url = client.address(cache.repository().file_path(listing.commit, file.path)),
                           .destination = blob,
                           .lock = cache.lock(file.hash),
                           .partial = blob},
                          arrived);
            cache.place(listing.commit, file, client.settings().links);
        });
    }
    // Last, so that the name leads to nothing that is not there.
    cache.remember_commit(listing.commit);
    return snapshot;
}

void fetch_to_folder(HubClient& client, const Repository& repository, const RepositoryListing& listing,
                     std::span<const RepositoryFile> files, const fs::path& folder) {
    // As huggingface_hub keeps its notes on a folder.
    const fs::path notes = folder / ".cache" / "huggingface" / "download";
    std::vector<RepositoryFile> missing;
    for (const RepositoryFile& file : files)
        if (file.path.starts_with(".cache/"))
            throw Error(fmt::format("{} has a file {}, whose place in a folder is taken.", repository.shown(),
                                    file.path),
                        "Fetch into the cache: leave out --local_dir.");
        else if (!has_content(folder / file.path, file))
            missing.push_back(file);
    if (missing.empty()) return;
    make_parents(notes / "x");
    write_shared_file(notes.parent_path() / ".gitignore", "*\n");
    check_space(folder, missing);
    TransferProgress progress(fmt::format("Fetching {}", repository.id), missing.size(), bytes_of(missing),
                              client.settings().shows_progress);
    fetch_all(missing, progress, [&](const RepositoryFile& file, const ArrivedBytes& arrived) {
        const fs::path note = notes / file.path, arrival = note.string() + "." + file.hash;
        make_parents(note);
        make_parents(folder / file.path);
        download_file(client,
                      {.repository = repository,
                       .file = file,
                       .url = client.address(repository.file_path(listing.commit, file.path)),
                       .destination = arrival,
                       .lock = note.string() + ".lock",
                       .partial = arrival},
                      arrived);
        std::error_code failure;
        fs::rename(arrival, folder / file.path, failure);
        if (failure) fail_to_write(folder / file.path, failure.message());
        const double now =
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
        write_shared_file(note.string() + ".metadata",
                          fmt::format("{}\n{}\n{:.6f}\n", listing.commit, file.hash, now));
    });
}

std::vector<RepositoryFile> matching_files(const RepositoryListing& listing,
                                           std::span<const std::string> include,
                                           std::span<const std::string> exclude) {
    const auto matches = [](std::string pattern, const std::string& path) {
        if (pattern.ends_with('/')) pattern.push_back('*');
        return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
    };
    std::vector<RepositoryFile> files;
    for (const RepositoryFile& file : listing.files) {
        const auto fits = [&](const std::string& pattern) { return matches(pattern, file.path); };
        if ((include.empty() || std::any_of(include.begin(), include.end(), fits)) &&
            std::none_of(exclude.begin(), exclude.end(), fits))
            files.push_back(file);
    }
    return files;
}

}  // namespace drover
