#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"
#include "core/tensor.h"

namespace drover {

static_assert(
    std::endian::native == std::endian::little,
    "safetensors data is little-endian and is mapped as it is; big-endian machines are not supported");

/// Element types that a safetensors file may name; a superset of DType. Their order is the one in which the
/// reference library lays tensors out (last first).
enum class FileDType : std::uint8_t {
    BOOL,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64
};

/// The name that the header uses: "BF16".
std::string_view name_of(FileDType dtype);
/// Bits of one element; three types take less than a byte.
int bits_of(FileDType dtype);
/// The file's type for one of the engine's types.
FileDType file_dtype_of(DType dtype);
/// The engine's type for a file's type; empty when there is none.
std::optional<DType> engine_dtype_of(FileDType dtype);

/// One tensor as a safetensors header describes it.
struct SafetensorsEntry {
    std::string name;
    FileDType dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< byte offsets from the start of the data part
    std::uint64_t end = 0;
};

/// The contents of a safetensors header, fully checked: every rule of the format holds.
struct SafetensorsHeader {
    std::map<std::string, std::string> metadata;
    std::vector<SafetensorsEntry> entries;  ///< in order of their offsets
    std::uint64_t data_begin = 0;           ///< offset of the data part in the file

    /// The largest JSON header that the format allows.
    static constexpr std::uint64_t max_json_bytes = 100'000'000;

    /// Parses the first bytes of a file of `file_size` bytes; `bytes` must hold at least the header.
    /// `where` names the file in errors. Memory use is bounded by a small multiple of the header's size.
    static SafetensorsHeader parse(std::string_view bytes, std::uint64_t file_size, std::string_view where);
};

/// The tensor that an entry of the file `path` describes, as a CPU view of `data` (must not be written to).
/// Error when it has more than four dimensions, or a dtype that the engine does not support.
Tensor tensor_of_entry(const SafetensorsEntry& entry, std::byte* data, const std::filesystem::path& path);

/// A safetensors file mapped into memory, read only. Tensors are views into the map: opening reads only the
/// header.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::filesystem::path& path);

    const SafetensorsHeader& header() const { return header_; }
    const std::filesystem::path& path() const { return path_; }
    const SafetensorsEntry* find(std::string_view name) const;

    /// The tensor as a CPU view (must not be written to). Error when it is absent, has more than four
    /// dimensions, or a dtype that the engine does not support. Old writers did not align the data: read
    /// elements of other writers' files with read_rows (io/model_folder.h), which handles that, and not
    /// through Tensor::data.
    Tensor tensor(std::string_view name) const;
    /// The same for an entry of this file's header, or for part of one.
    Tensor tensor(const SafetensorsEntry& entry) const;
    /// Its first byte.
    std::byte* data_of(const SafetensorsEntry& entry) const {
        return file_.data() + header_.data_begin + entry.begin;
    }
    /// Lets the memory of elements that were read be used for something else; they are read again when
    /// needed.
    void forget() const { file_.forget(); }

  private:
    std::filesystem::path path_;
    MappedFile file_;
    SafetensorsHeader header_;
    std::map<std::string, std::size_t, std::less<>> index_;
};

/// Lays a safetensors file out as the reference library does: metadata first, tensors by dtype (the last
/// FileDType first, so wide before narrow) and then by name, header padded to 8 bytes. The layout is fixed by
/// metadata, names, dtypes and shapes alone, so that several writers can each put their byte ranges into one
/// file.
class SafetensorsLayout {
  public:
    struct Item {
        std::string name;
        DType dtype;
        std::vector<std::int64_t> shape;
    };
    /// Without metadata the file gets {"format": "pt"}, without which some Hugging Face versions refuse to
    /// load it; given metadata is written unchanged. Error for names that are not UTF-8, reserved, or
    /// duplicate.
    explicit SafetensorsLayout(std::vector<Item> items, std::map<std::string, std::string> metadata = {});

    /// The length prefix and the JSON header.
    const std::string& header_bytes() const { return header_bytes_; }
    std::uint64_t file_size() const { return file_size_; }
    /// Absolute file offset of a tensor's first byte.
    std::uint64_t offset_of(std::string_view name) const;

  private:
    std::string header_bytes_;
    std::map<std::string, std::uint64_t, std::less<>> offsets_;
    std::uint64_t file_size_ = 0;
};

/// Writes packed CPU tensors into one file, beside it first, then renamed over it. Error when the disk is
/// full or the folder cannot be written; an existing file at `path` is then unchanged. Metadata as for
/// SafetensorsLayout.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                       std::map<std::string, std::string> metadata = {});

}  // namespace drover
