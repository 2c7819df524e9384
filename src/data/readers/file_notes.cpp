#include "data/readers/file_notes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <optional>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/text_file.h"

namespace drover {
namespace {

/// Whether the file is old enough that any further change would alter its timestamps. Modification times may
/// be in whole seconds, and some file systems have a resolution of two; ctime comes from the kernel's clock,
/// which ticks often.
bool is_settled(const struct stat& status) {
    constexpr std::int64_t nanoseconds = 1'000'000'000;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const auto age = [&](const timespec& time) {
        return (now.tv_sec - time.tv_sec) * nanoseconds + now.tv_nsec - time.tv_nsec;
    };
    return age(status.st_mtim) >= 2 * nanoseconds && age(status.st_ctim) >= nanoseconds / 10;
}

struct stat status_of(const std::filesystem::path& file) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0)
        throw Error(fmt::format("Cannot read {}: {}.", file.string(), std::strerror(errno)),
                    "Check the path and its permissions.");
    return status;
}

/// The text of a note; absent where there is none, or where this user may not look for one.
std::optional<std::string> read(const std::filesystem::path& note) {
    std::error_code unknown;
    if (!std::filesystem::exists(note, unknown)) return std::nullopt;
    try {
        return read_text_file(note);
    } catch (const Error&) {
        return std::nullopt;  // notes are only a cache: without one the file is read again
    }
}

}  // namespace

std::filesystem::path FileNotes::place(const std::filesystem::path& file, const std::string& kind) const {
    const struct stat status = status_of(file);
    // The modification time can be set by programs; ctime cannot.
    const std::string state =
        fmt::format("{} {} {}.{:09} {}.{:09} {}", status.st_dev, status.st_size, status.st_mtim.tv_sec,
                    status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec, status.st_ino);
    const std::string key =
        ContentHash().add(std::filesystem::weakly_canonical(file).string()).add(state).hex();
    return folder_ / (key + "." + kind);
}

void FileNotes::write(const std::filesystem::path& place, const std::string& content) const {
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    try {
        write_file_atomically(place, content);
    } catch (const Error&) {
        // Notes are only a cache: without one the file is read again.
    }
}

std::string FileNotes::remember(const std::filesystem::path& file, const std::string& kind,
                                const std::function<std::string()>& find_out) const {
    if (folder_.empty()) return find_out();
    const std::filesystem::path noted = place(file, kind);
    if (std::optional<std::string> text = read(noted)) return *std::move(text);
    std::string text = find_out();
    // Not if the file changed in the meantime, nor if it could still change without changing its timestamps.
    if (is_settled(status_of(file)) && place(file, kind) == noted) write(noted, text);
    return text;
}

std::string FileNotes::hash(const std::filesystem::path& file) const {
    return remember(file, "hash", [&] { return ContentHash().add_file(file).hex(); });
}

void FileNotes::note(const std::filesystem::path& file, const std::string& kind,
                     const std::string& text) const {
    if (!folder_.empty()) write(place(file, kind), text);
}

}  // namespace drover
