#include "hub/cache.h"

#include <fmt/format.h>

#include <fstream>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/path_inside.h"
#include "core/sha256.h"
#include "core/text_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) fail_to_write(folder, failure.message());
}

/// What backup programs look for in a folder that they should leave out (bford.info/cachedir).
constexpr std::string_view cache_tag =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Files of the Hugging Face Hub, which can be fetched "
    "again.\n";

}  // namespace

void fail_to_write(const fs::path& path, std::string_view reason) {
    throw Error(fmt::format("{} cannot be written: {}.", path.string(), reason),
                "Check the disk and the folder's permissions, or name another folder with HF_HOME.");
}

fs::path unique_beside(const fs::path& path, std::string_view ending) {
    const std::string random = unpredictable_bytes(4);
    return fmt::format("{}.{}{}", path.string(),
                       hex_text({reinterpret_cast<const unsigned char*>(random.data()), 4}), ending);
}

void write_shared_file(const fs::path& path, std::string_view content) {
    const fs::path beside = unique_beside(path, ".tmp");
    std::ofstream out(beside, std::ios::binary);
    out << content;
    out.close();
    std::error_code failure;
    if (out) fs::rename(beside, path, failure);
    if (out && !failure) return;
    std::error_code ignored;
    fs::remove(beside, ignored);
    fail_to_write(path, failure ? failure.message() : "the disk may be full");
}

RepositoryCache::RepositoryCache(fs::path cache, Repository repository)
    : cache_(std::move(cache)), repository_(std::move(repository)) {
    if (!is_inner_path(repository_.revision) || repository_.revision.empty())
        throw Error(fmt::format("The revision \"{}\" of {} leads out of the cache.", repository_.revision,
                                repository_.id),
                    "Name a branch, a tag or a commit.");
}

fs::path RepositoryCache::snapshot(std::string_view commit) const {
    return folder() / "snapshots" / commit;
}

fs::path RepositoryCache::blob(std::string_view hash) const {
    return folder() / "blobs" / hash;
}

fs::path RepositoryCache::lock(std::string_view name) const {
    return cache_ / ".locks" / repository_.folder_name() / fmt::format("{}.lock", name);
}

std::optional<std::string> RepositoryCache::commit() const {
    std::error_code ignored;
    const fs::path reference = folder() / "refs" / repository_.revision;
    if (!fs::is_regular_file(reference, ignored)) return repository_.revision;
    std::string commit = read_text_file(reference);
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
    if (commit.empty()) return std::nullopt;
    if (!is_inner_name(commit))
        throw Error(fmt::format("{} names \"{}\", which is not a commit.", reference.string(), commit),
                    "Fetch the repository again; the file was damaged or changed.");
    return commit;
}

std::optional<fs::path> RepositoryCache::snapshot() const {
    const auto known = commit();
    std::error_code ignored;
    if (!known || !fs::is_directory(snapshot(*known), ignored)) return std::nullopt;
    return snapshot(*known);
}

std::optional<RepositoryListing> RepositoryCache::listing(std::string_view commit) const {
    const fs::path file = folder() / "trees" / fmt::format("{}.json", commit);
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return std::nullopt;
    try {
        return parse_listing(read_text_file(file), commit, file.string());
    } catch (const Error&) {
        return std::nullopt;  // of another version; as good as none
    }
}

void RepositoryCache::prepare_locks() const {
    make_folder(lock("").parent_path());
}

void RepositoryCache::prepare(std::string_view commit) const {
    make_folder(folder() / "blobs");
    make_folder(snapshot(commit));
    prepare_locks();
    std::error_code ignored;
    if (const fs::path tag = cache_ / "CACHEDIR.TAG"; !fs::exists(tag, ignored))
        write_shared_file(tag, cache_tag);
}

void RepositoryCache::remember_commit(std::string_view commit) const {
    if (repository_.revision == commit) return;
    const fs::path reference = folder() / "refs" / repository_.revision;
    std::error_code ignored;
    // A cache that may only be read is complete as it is.
    if (fs::is_regular_file(reference, ignored) && read_text_file(reference) == commit) return;
    make_folder(reference.parent_path());
    write_shared_file(reference, commit);
}

void RepositoryCache::remember_listing(const RepositoryListing& listing) const {
    const fs::path file = folder() / "trees" / fmt::format("{}.json", listing.commit);
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) return;  // a commit does not change
    make_folder(file.parent_path());
    write_shared_file(file, listing_text(listing));
}

void RepositoryCache::place(std::string_view commit, const RepositoryFile& file, bool links) const {
    const fs::path pointer = snapshot(commit) / file.path;
    const fs::path content = blob(file.hash);
    make_folder(pointer.parent_path());
    std::error_code failure;
    if (fs::exists(pointer, failure)) return;
    fs::remove(pointer, failure);  // a link whose blob is gone
    if (links) {
        fs::create_symlink(content.lexically_relative(pointer.parent_path()), pointer, failure);
        if (!failure || fs::exists(pointer)) return;  // perhaps another process made it
    }
    const fs::path beside = unique_beside(pointer, ".partial");
    fs::copy_file(content, beside, fs::copy_options::overwrite_existing, failure);
    if (!failure) fs::rename(beside, pointer, failure);
    if (failure) fail_to_write(pointer, failure.message());
}

std::optional<fs::path> find_hub_snapshot(const fs::path& cache, const Repository& repository) {
    if (!is_inner_name(repository.folder_name())) return std::nullopt;
    return RepositoryCache(cache, repository).snapshot();
}

}  // namespace drover
