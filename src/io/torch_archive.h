#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

/// Files as torch.save writes them: a zip archive of a pickle and one uncompressed entry per storage.
namespace drover {

/// Writes a pickle, one value after the other. Dicts hold keys and values by turns. Ends where the outermost
/// dict ends, or with the one value outside any dict.
class PickleWriter {
  public:
    PickleWriter();

    void begin_dict();
    void end_dict();
    void begin_list();
    void end_list();
    void text(std::string_view value);
    void integer(std::int64_t value);
    void real(double value);
    void boolean(bool value);
    /// A tuple of numbers.
    void reals(const std::vector<double>& values);
    /// A packed tensor on the CPU with a storage of its own. Returns the storage's number, from 0 on.
    std::size_t tensor(DType dtype, const std::vector<std::int64_t>& shape);
    /// Another tensor of that shape with the elements of an earlier one.
    void same_tensor(std::size_t storage, const std::vector<std::int64_t>& shape);
    /// `torch.bfloat16`
    void dtype(DType value);
    /// `torch.Size`
    void size(const std::vector<std::int64_t>& shape);
    /// A place for a tensor that is in the file tensor_<number>.pt of a folder, as torch_xla writes it.
    void tensor_reference(std::int64_t number);

    struct Storage {
        DType dtype;
        std::int64_t elements;
        std::uint64_t bytes() const { return static_cast<std::uint64_t>(elements) * size_of(dtype); }
    };
    const std::vector<Storage>& storages() const { return storages_; }
    /// The whole pickle.
    std::string bytes() const { return bytes_ + "."; }

  private:
    void name(std::string_view module, std::string_view name);
    void tuple(const std::vector<std::int64_t>& values);

    std::string bytes_;
    std::vector<Storage> storages_;
};

/// Where everything lies in the archive of a pickle, which follows from the pickle alone: storages at
/// multiples of 64 bytes, 64-bit fields where they are needed. Storages can be written in any order and in
/// pieces; `other_parts` is the rest of the file.
class TorchArchive {
  public:
    /// `name` is the folder inside the archive; torch.save takes that of the file, without its extension.
    TorchArchive(std::string name, const PickleWriter& pickle);

    std::uint64_t file_size() const { return file_size_; }
    std::size_t storages() const { return storage_count_; }
    std::uint64_t storage_offset(std::size_t storage) const;

    struct Part {
        std::uint64_t offset;
        std::string bytes;
    };
    /// Given the checksums (zip_checksum) of all storages.
    std::vector<Part> other_parts(const std::vector<std::uint32_t>& checksums) const;

  private:
    struct Entry {
        std::string name;
        std::string content;  ///< empty for storages
        std::uint64_t bytes = 0;
        std::uint64_t header = 0, data = 0;  ///< offsets in the file
        bool is_storage = false;
    };
    std::string local_header(const Entry& entry, std::uint32_t checksum) const;
    void place(Entry& entry);

    std::vector<Entry> entries_;
    std::size_t first_storage_ = 0, storage_count_ = 0;
    std::uint64_t directory_ = 0, directory_bytes_ = 0, file_size_ = 0;
};

/// Writes packed CPU tensors, one per storage of the pickle, into one file, beside it first, then renamed
/// over it.
void write_torch_file(const std::filesystem::path& path, const PickleWriter& pickle,
                      const std::vector<Tensor>& tensors);

}  // namespace drover
