#include "core/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/arena.h"
#include "core/error.h"
#include "core/number_text.h"

namespace drover {

PartialFile::PartialFile(const std::filesystem::path& path, std::uint64_t bytes)
    : path_(path), partial_path_(path.string() + ".partial") {
    descriptor_ = open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail(errno);
    // Some file systems cannot reserve; there a full disk is noticed when writing.
    if (bytes > 0 && fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        const int error_number = errno;
        close(descriptor_);
        unlink(partial_path_.c_str());
        throw Error(fmt::format("Cannot write {}, which takes {}: {}.", path_.string(), bytes_text(bytes),
                                std::strerror(error_number)),
                    "Free some space or save to another disk.");
    }
}

PartialFile::~PartialFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!partial_path_.empty()) unlink(partial_path_.c_str());
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::exchange(other.partial_path_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

void PartialFile::fail(int error_number) const {
    throw Error(fmt::format("Cannot write {}: {}.", path_.string(), std::strerror(error_number)),
                "Check the folder's permissions and the free space.");
}

void PartialFile::write(std::uint64_t offset, const void* data, std::uint64_t bytes) {
    require(descriptor_ >= 0, "a finished file is written to");
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t count = pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(errno);
        next += count;
        offset += static_cast<std::uint64_t>(count);
        bytes -= static_cast<std::uint64_t>(count);
    }
}

void PartialFile::finish() {
    require(descriptor_ >= 0, "a file is finished twice");
    if (fsync(descriptor_) != 0) fail(errno);
    if (close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void PartialFile::commit() {
    require(descriptor_ < 0 && !partial_path_.empty(), "a file is moved to its place before it is finished");
    if (rename(partial_path_.c_str(), path_.c_str()) != 0) fail(errno);
    partial_path_.clear();
}

void sync_folder(const std::filesystem::path& folder) {
    const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some network file systems refuse to open or sync folders; the files themselves are safe by then.
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

}  // namespace drover
