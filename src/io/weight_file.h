#pragma once

#include <variant>

#include "io/torch_weights.h"

namespace drover {

/// A file of weights, mapped: safetensors, or a state dict of torch.save. Which one is seen from its first
/// bytes.
class WeightFile {
  public:
    /// `key` as for TorchWeights.
    explicit WeightFile(const std::filesystem::path& path, std::string_view key = {});

    const std::filesystem::path& path() const;
    const SafetensorsHeader& header() const;
    const SafetensorsEntry* find(std::string_view name) const;
    bool is_packed(std::string_view name) const;
    Tensor tensor(const SafetensorsEntry& entry) const;
    StridedTensor view(const SafetensorsEntry& entry) const;
    /// As TorchWeights'; safetensors have no checksums.
    void verify(const SafetensorsEntry& entry) const;
    void forget() const;

  private:
    std::variant<SafetensorsFile, TorchWeights> file_;
};

}  // namespace drover
