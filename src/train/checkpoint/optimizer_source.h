#pragma once

#include <filesystem>
#include <string>

#include "io/safetensors.h"

namespace drover {

/// Where an optimizer's state is read from: one of our checkpoints, or another program's.
class OptimizerSource {
  public:
    virtual ~OptimizerSource() = default;

    /// The whole tensor of a leaf ("exp_avg", "model.norm.weight") on the CPU, packed; absent if there is
    /// none. It may be unaligned, and is valid until the next call.
    virtual Tensor find(const std::string& kind, const std::string& leaf) const = 0;
    /// For messages: the file.
    virtual std::string text() const = 0;
};

/// optimizer.safetensors of a checkpoint.
class SafetensorsOptimizerSource final : public OptimizerSource {
  public:
    /// Error when the folder has no such file.
    explicit SafetensorsOptimizerSource(const std::filesystem::path& checkpoint);

    Tensor find(const std::string& kind, const std::string& leaf) const override;
    std::string text() const override { return file_.path().string(); }

  private:
    SafetensorsFile file_;
};

}  // namespace drover
