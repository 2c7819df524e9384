#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"
#include "io/strided_tensor.h"
#include "io/torch_pickle.h"

namespace drover {

/// A state dict in a file of torch.save, mapped: pytorch_model.bin, a shard of one, checkpoint.pt.
class TorchWeights {
  public:
    /// The file's value is a dict of tensors, or holds one as its entry `key`. Error when it is neither.
    explicit TorchWeights(const std::filesystem::path& path, std::string_view key = {});
    ~TorchWeights();
    TorchWeights(TorchWeights&&) noexcept;
    TorchWeights& operator=(TorchWeights&&) noexcept;

    const std::filesystem::path& path() const { return path_; }
    /// All tensors in the order of the dict. Offsets count from the file's first byte; only those of packed
    /// tensors say where the elements are.
    const SafetensorsHeader& header() const { return header_; }
    const SafetensorsEntry* find(std::string_view name) const;
    /// Whether the elements are as they are in a safetensors file.
    bool is_packed(std::string_view name) const { return !strided_.contains(name); }

    /// As SafetensorsFile::tensor. A tensor that is not packed is copied the first time it is asked for.
    Tensor tensor(const SafetensorsEntry& entry) const;
    /// The elements where they are, for an entry of the header or part of a packed one.
    StridedTensor view(const SafetensorsEntry& entry) const;
    /// Error when the file's checksum of the storage with this entry's elements is wrong; each storage is
    /// read once.
    void verify(const SafetensorsEntry& entry) const {
        pickle_.verify_storage_of(view(entry).data, [this] { forget(); });
    }
    /// Lets the memory of elements that were read be used for something else; they are read again when
    /// needed.
    void forget() const { file_.forget(); }

  private:
    struct Copies;

    std::filesystem::path path_;
    MappedFile file_;
    TorchPickle pickle_;
    SafetensorsHeader header_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, PickleTensor, std::less<>> strided_;
    std::unique_ptr<Copies> copies_;
};

}  // namespace drover
