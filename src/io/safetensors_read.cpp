#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/lfs_pointer.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

constexpr std::uint64_t length_bytes = sizeof(std::uint64_t);

}  // namespace

std::optional<DType> engine_dtype_of(FileDType dtype) {
    for (const DType candidate :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u16, DType::u8})
        if (file_dtype_of(candidate) == dtype) return candidate;
    return std::nullopt;
}

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

Tensor tensor_of_entry(const SafetensorsEntry& entry, std::byte* data, const std::filesystem::path& path) {
    if (entry.shape.size() > static_cast<std::size_t>(Shape::max_rank))
        throw Error(
            fmt::format("{}: the tensor {} has {} dimensions; at most {} are supported.", path.string(),
                        safetensors_detail::quoted_name(entry.name), entry.shape.size(), Shape::max_rank),
            "Check that the file belongs to this model.");
    const auto dtype = engine_dtype_of(entry.dtype);
    if (!dtype)
        throw Error(
            fmt::format("{}: the tensor {} has the element type {}, which is not supported.", path.string(),
                        safetensors_detail::quoted_name(entry.name), name_of(entry.dtype)),
            "Convert the model to F32, BF16 or F16 first.");
    Shape shape;
    for (const std::int64_t size : entry.shape) shape.append(size);
    return Tensor(data, *dtype, shape);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      file_(path),
      header_(SafetensorsHeader::parse(file_.bytes(), file_.bytes().size(), path_.string())) {
    for (std::size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
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
    return tensor_of_entry(entry, data_of(entry), path_);
}

}  // namespace drover
