#include "core/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

/// Closes a file descriptor when the block is left.
struct FileDescriptor {
    int number;
    explicit FileDescriptor(int descriptor) : number(descriptor) {}
    ~FileDescriptor() {
        if (number >= 0) close(number);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    const auto refuse = [&](std::string_view reason) {
        throw Error(fmt::format("Cannot read {}: {}.", path.string(), reason),
                    "Check the path and its permissions.");
    };
    // Without O_NONBLOCK opening a named pipe would wait for a writer.
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.number < 0) refuse(std::strerror(errno));
    struct stat status {};
    if (fstat(file.number, &status) != 0) refuse(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!S_ISREG(status.st_mode)) refuse("it is not a regular file");
    if (status.st_size == 0) return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const map = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (map == MAP_FAILED) refuse(std::strerror(errno));
    map_ = map;
    size_ = size;
}

MappedFile::~MappedFile() {
    if (map_ != nullptr) munmap(map_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace drover
