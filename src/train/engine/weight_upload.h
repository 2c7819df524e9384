#pragma once

#include <span>

#include "backend/backend.h"

namespace drover {

/// Puts fp32 numbers into tensors of any floating dtype on the backend's device: converted in place on a CPU,
/// and through a piece of host memory that the GPU can read by itself otherwise.
class WeightUpload {
  public:
    WeightUpload(Backend& backend, Stream stream);

    /// `target` is packed and has as many elements. Has happened when it returns.
    void write(std::span<const float> values, const Tensor& target);

  private:
    static constexpr std::size_t piece_bytes = std::size_t{64} << 20;

    Backend& backend_;
    Stream stream_;
    MemoryBlock piece_;  // none on a CPU
};

}  // namespace drover
