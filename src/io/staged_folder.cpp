#include "io/staged_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/arena.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/partial_file.h"
#include "io/model_folder.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view partial_suffix = ".partial";

[[noreturn]] void fail(std::string_view verb, const fs::path& path, int error_number) {
    const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
    throw Error(fmt::format("Cannot {} {}: {}.", verb, path.string(), std::strerror(error_number)),
                full
                    ? "Free some space, keep fewer checkpoints (--save_total_limit), or save to another disk."
                    : "Check the folder's permissions and the disk.");
}

/// Reads exactly `bytes`; false at an early end.
bool read_exactly(int descriptor, std::uint64_t offset, std::byte* to, std::uint64_t bytes) {
    while (bytes > 0) {
        const ssize_t count = pread(descriptor, to, bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        to += count;
        offset += static_cast<std::uint64_t>(count);
        bytes -= static_cast<std::uint64_t>(count);
    }
    return true;
}

void write_exactly(int descriptor, std::uint64_t offset, const std::byte* from, std::uint64_t bytes,
                   const fs::path& path) {
    while (bytes > 0) {
        const ssize_t count = pwrite(descriptor, from, bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("write", path, errno);
        from += count;
        offset += static_cast<std::uint64_t>(count);
        bytes -= static_cast<std::uint64_t>(count);
    }
}

std::array<unsigned char, 16> hash_of(const std::byte* data, std::uint64_t bytes) {
    return ContentHash().add_bytes({reinterpret_cast<const char*>(data), bytes}).digest();
}

void make_folder(const fs::path& folder) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) fail("make the folder", folder, failure.value());
}

}  // namespace

FileDigest digest_file(const fs::path& path) {
    const std::string hash = ContentHash().add_file(path).hex();
    return {.bytes = fs::file_size(path), .hash = hash};
}

StagedFolder::StagedFolder(fs::path folder)
    : folder_(std::move(folder)), staging_(folder_.string() + std::string(partial_suffix)) {}

StagedFolder::~StagedFolder() {
    close_all();
}

void StagedFolder::create() {
    std::error_code failure;
    fs::remove_all(staging_, failure);
    if (failure) fail("remove", staging_, failure.value());
    make_folder(staging_);
}

void StagedFolder::create_file(const std::string& name, std::uint64_t bytes) {
    const fs::path path = staging_ / name;
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail("create", path, errno);
    descriptors_[name] = descriptor;
    if (bytes == 0 || fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0) return;
    // Some file systems cannot reserve; there a full disk is noticed when writing.
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        fail(fmt::format("reserve {} for", bytes_text(bytes)), path, errno);
    if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) fail("create", path, errno);
}

int StagedFolder::descriptor_of(const std::string& name) {
    const auto found = descriptors_.find(name);
    if (found != descriptors_.end()) return found->second;
    const fs::path path = staging_ / name;
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) fail("open", path, errno);
    return descriptors_[name] = descriptor;
}

void StagedFolder::write(const std::string& name, const RowsInFile& place, const std::byte* data) {
    const int descriptor = descriptor_of(name);
    for (std::uint64_t row = 0; row < place.rows; ++row)
        write_exactly(descriptor, place.offset + row * place.stride, data + row * place.row_bytes,
                      place.row_bytes, staging_ / name);
    written_.push_back({name, place, hash_of(data, place.bytes())});
}

void StagedFolder::flush() {
    for (const auto& [name, descriptor] : descriptors_)
        if (fsync(descriptor) != 0) fail("write", staging_ / name, errno);
    // Drop it from the cache, so that the comparison reads from the disk.
    std::set<std::string> names;
    for (const auto& [name, descriptor] : descriptors_) {
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        names.insert(name);
    }
    close_all();
    for (const std::string& name : names) check_written(name);
    written_.clear();
}

void StagedFolder::check_written(const std::string& name) const {
    const fs::path path = staging_ / name;
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail("read", path, errno);
    std::vector<std::byte> bytes;
    bool same = true;
    for (const Written& written : written_) {
        if (written.name != name) continue;
        const RowsInFile& place = written.place;
        bytes.resize(place.bytes());
        for (std::uint64_t row = 0; row < place.rows; ++row)
            same = same && read_exactly(descriptor, place.offset + row * place.stride,
                                        bytes.data() + row * place.row_bytes, place.row_bytes);
        same = same && hash_of(bytes.data(), bytes.size()) == written.hash;
    }
    close(descriptor);
    if (!same)
        throw Error(fmt::format("{} does not read back as it was written.", path.string()),
                    "Check the disk, or save to another one.");
}

std::map<std::string, FileDigest> StagedFolder::seal() const {
    std::map<std::string, FileDigest> digests;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(staging_)) {
        const fs::path& path = entry.path();
        if (entry.is_directory()) {
            sync_folder(path);
            continue;
        }
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) fail("read", path, errno);
        const bool synced = fsync(descriptor) == 0;
        const int error_number = errno;
        close(descriptor);
        if (!synced) fail("write", path, error_number);
        if (path.extension() == ".safetensors") const SafetensorsFile checked(path);
        digests[path.lexically_relative(staging_).generic_string()] = digest_file(path);
    }
    return digests;
}

void StagedFolder::publish() {
    close_all();
    sync_folder(staging_);
    if (!fs::exists(folder_)) {
        if (rename(staging_.c_str(), folder_.c_str()) != 0) fail("make", folder_, errno);
    } else if (renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) == 0) {
        sync_folder(folder_.parent_path());
        discard();
    } else {
        // On a file system that cannot exchange names, neither exists for a moment.
        const fs::path replaced = folder_.string() + ".replaced" + std::string(partial_suffix);
        std::error_code ignored;
        fs::remove_all(replaced, ignored);
        if (rename(folder_.c_str(), replaced.c_str()) != 0) fail("replace", folder_, errno);
        if (rename(staging_.c_str(), folder_.c_str()) != 0) {
            const int error_number = errno;
            rename(replaced.c_str(), folder_.c_str());
            fail("make", folder_, error_number);
        }
        fs::remove_all(replaced, ignored);
    }
    sync_folder(folder_.parent_path());
}

void StagedFolder::publish_files_into(const fs::path& folder) {
    close_all();
    make_folder(folder);
    std::vector<std::string> names;
    std::set<fs::path> folders;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(staging_)) {
        const fs::path name = entry.path().lexically_relative(staging_);
        if (!entry.is_directory()) {
            names.push_back(name.generic_string());
        } else {
            make_folder(folder / name);
            folders.insert(folder / name);
        }
    }
    const auto comes_last = [](const std::string& name) {
        return name == single_weights_file || name == weights_index_file;
    };
    std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return comes_last(a) < comes_last(b);
    });
    for (const std::string& name : names)
        if (rename((staging_ / name).c_str(), (folder / name).c_str()) != 0)
            fail("make", folder / name, errno);
    remove_stale_weights(folder, {names.begin(), names.end()});
    for (const fs::path& inner : folders) sync_folder(inner);
    sync_folder(folder);
    discard();
}

void StagedFolder::discard() noexcept {
    close_all();
    std::error_code ignored;
    fs::remove_all(staging_, ignored);
}

void StagedFolder::close_all() noexcept {
    for (const auto& [name, descriptor] : descriptors_) close(descriptor);
    descriptors_.clear();
}

namespace {

/// Whether saves and removals use such names ("checkpoint-20.partial", "step_20.partial",
/// "model.replaced.partial"): a user's own folder may also end in ".partial".
bool is_left_by_a_save(std::string_view name) {
    if (!name.ends_with(partial_suffix)) return false;
    name.remove_suffix(partial_suffix.size());
    for (const std::string_view kind : {".replaced", ".removed"})
        if (name.ends_with(kind)) name.remove_suffix(kind.size());
    const std::string_view beginning = name.starts_with("step_") ? "step_" : "checkpoint-";
    if (!name.starts_with(beginning)) return name == "model";
    name.remove_prefix(beginning.size());
    return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

/// If a save was killed between the two renames on a file system that cannot exchange names, moves the old
/// folder back to its place and removes its name from `names`.
void put_back_replaced(const fs::path& output_dir, std::vector<std::string>& names) {
    const std::string suffix = ".replaced" + std::string(partial_suffix);
    std::erase_if(names, [&](const std::string& name) {
        if (!name.ends_with(suffix)) return false;
        const fs::path place = output_dir / name.substr(0, name.size() - suffix.size());
        std::error_code failure;
        if (fs::exists(place, failure)) return false;
        fs::rename(output_dir / name, place, failure);
        return !failure;
    });
}

}  // namespace

void remove_folder_safely(const fs::path& folder) {
    const fs::path doomed = folder.string() + ".removed" + std::string(partial_suffix);
    std::error_code failure;
    fs::remove_all(doomed, failure);  // of an earlier attempt
    fs::rename(folder, doomed, failure);
    if (!failure) fs::remove_all(doomed, failure);
    if (failure) fail("remove", folder, failure.value());
}

std::vector<std::string> remove_partial_folders(const fs::path& output_dir) {
    std::vector<std::string> names;
    if (!fs::is_directory(output_dir)) return names;
    for (const fs::directory_entry& entry : fs::directory_iterator(output_dir)) {
        std::string name = entry.path().filename().string();
        std::error_code unreadable;
        if (is_left_by_a_save(name) && entry.is_directory(unreadable)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    put_back_replaced(output_dir, names);
    for (const std::string& name : names) {
        std::error_code failure;
        fs::remove_all(output_dir / name, failure);
        if (failure) fail("remove", output_dir / name, failure.value());
    }
    return names;
}

}  // namespace drover
