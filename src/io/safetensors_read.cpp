#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/lfs_pointer.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

constexpr std::uint64_t length_bytes = sizeof(std::uint64_t);

/// The engine's type for a file's type; nothing when there is none.
std::optional<DType> engine_dtype_of(FileDType dtype) {
    for (const DType candidate :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u16, DType::u8})
        if (file_dtype_of(candidate) == dtype) return candidate;
    return std::nullopt;
}

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

SafetensorsHeader SafetensorsHeader::parse(std::string_view bytes, std::uint64_t file_size,
                                           std::string_view where) {
    require(bytes.size() <= file_size, "more bytes than the file has");
    refuse_lfs_pointer(bytes, where);
    if (file_size < length_bytes)
        throw Error(fmt::format("{} has {} bytes, less than the 8 that every safetensors file starts with.",
                                where, file_size),
                    safetensors_detail::fetch_again);
    require(bytes.size() >= length_bytes, "a safetensors header was handed over in part");
    std::uint64_t json_bytes = 0;
    std::memcpy(&json_bytes, bytes.data(), length_bytes);
    if (json_bytes > max_json_bytes)
        throw Error(
            fmt::format(
                "{} is not a safetensors file: its first 8 bytes would mean a header of {} bytes, and "
                "the format allows {}.",
                where, json_bytes, max_json_bytes),
            "Check that the path names a .safetensors file, and fetch it again.");
    if (json_bytes > file_size - length_bytes)
        throw Error(fmt::format("{} ends inside its header, which needs {} bytes while the file has {}.",
                                where, length_bytes + json_bytes, file_size),
                    safetensors_detail::fetch_again);
    require(bytes.size() - length_bytes >= json_bytes, "a safetensors header was handed over in part");

    SafetensorsHeader header =
        safetensors_detail::parse_header_json(bytes.substr(length_bytes, json_bytes), where);
    header.data_begin = length_bytes + json_bytes;
    safetensors_detail::check_offsets(header, file_size, where);
    return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
    const auto refuse = [&](std::string_view reason) {
        throw Error(fmt::format("Cannot read {}: {}.", path_.string(), reason),
                    "Check the path and its permissions.");
    };
    // Without O_NONBLOCK opening a named pipe would wait for a writer.
    const FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.number < 0) refuse(std::strerror(errno));
    struct stat status {};
    if (fstat(file.number, &status) != 0) refuse(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!S_ISREG(status.st_mode)) refuse("it is not a regular file");
    if (status.st_size > 0) {
        map_bytes_ = static_cast<std::size_t>(status.st_size);
        void* const map = mmap(nullptr, map_bytes_, PROT_READ, MAP_PRIVATE, file.number, 0);
        if (map == MAP_FAILED) refuse(std::strerror(errno));
        map_ = map;
    }
    try {
        header_ = SafetensorsHeader::parse({static_cast<const char*>(map_), map_bytes_}, map_bytes_,
                                           path_.string());
        for (std::size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
    } catch (...) {
        if (map_ != nullptr) munmap(map_, map_bytes_);
        throw;
    }
}

SafetensorsFile::~SafetensorsFile() {
    if (map_ != nullptr) munmap(map_, map_bytes_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      header_(std::move(other.header_)),
      index_(std::move(other.index_)),
      map_(std::exchange(other.map_, nullptr)),
      map_bytes_(std::exchange(other.map_bytes_, 0)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(header_, other.header_);
    std::swap(index_, other.index_);
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    return *this;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &header_.entries[found->second];
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
    const SafetensorsEntry* const entry = find(name);
    if (entry == nullptr)
        throw Error(
            fmt::format("{} has no tensor {}.", path_.string(), safetensors_detail::quoted_name(name)),
            "Check that the file belongs to this model.");
    return tensor(*entry);
}

Tensor SafetensorsFile::tensor(const SafetensorsEntry& entry) const {
    if (entry.shape.size() > static_cast<std::size_t>(Shape::max_rank))
        throw Error(
            fmt::format("{}: the tensor {} has {} dimensions; at most {} are supported.", path_.string(),
                        safetensors_detail::quoted_name(entry.name), entry.shape.size(), Shape::max_rank),
            "Check that the file belongs to this model.");
    const auto dtype = engine_dtype_of(entry.dtype);
    if (!dtype)
        throw Error(
            fmt::format("{}: the tensor {} has the element type {}, which is not supported.", path_.string(),
                        safetensors_detail::quoted_name(entry.name), name_of(entry.dtype)),
            "Convert the model to F32, BF16 or F16 first.");
    Shape shape;
    for (const std::int64_t size : entry.shape) shape.append(size);
    return Tensor(static_cast<std::byte*>(map_) + header_.data_begin + entry.begin, *dtype, shape);
}

}  // namespace drover
