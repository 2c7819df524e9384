#include "data/file_hashes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/json.h"

namespace drover {
namespace {

struct stat status_of(const std::filesystem::path& file) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0)
        throw Error(fmt::format("Cannot read {}: {}.", file.string(), std::strerror(errno)),
                    "Check the path and its permissions.");
    return status;
}

}  // namespace

std::filesystem::path FileHashes::note(const std::filesystem::path& file, const char* kind) const {
    const struct stat status = status_of(file);
    const std::string state = fmt::format("{} {} {}.{:09} {}", status.st_dev, status.st_size,
                                          status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ino);
    const std::string key =
        ContentHash().add(std::filesystem::weakly_canonical(file).string()).add(state).hex();
    return folder_ / (key + "." + kind);
}

void FileHashes::write_note(const std::filesystem::path& note, const std::string& content) const {
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    try {
        write_file_atomically(note, content);
    } catch (const Error&) {
        // Only a memory: without it the file is read again.
    }
}

std::string FileHashes::hash(const std::filesystem::path& file) const {
    const std::filesystem::path known = note(file, "hash");
    if (std::filesystem::exists(known))
        if (std::string text = read_text_file(known); text.size() == 32) return text;
    std::string text = ContentHash().add_file(file).hex();
    // Not when the file changed meanwhile, nor when it may change again within the resolution of its time.
    constexpr std::time_t settled_seconds = 2;
    const bool settled = std::time(nullptr) - status_of(file).st_mtim.tv_sec >= settled_seconds;
    if (settled && note(file, "hash") == known) write_note(known, text);
    return text;
}

bool FileHashes::is_verified(const std::filesystem::path& file) const {
    return std::filesystem::exists(note(file, "verified"));
}

void FileHashes::mark_verified(const std::filesystem::path& file) const {
    write_note(note(file, "verified"), {});
}

}  // namespace drover
