#pragma once

#include <span>

#include "backend/stream.h"
#include "core/arena.h"

namespace drover {

class Backend;

/// Writes fp32 numbers into tensors of any floating dtype on the backend's device: converted in place on a
/// CPU, otherwise through a piece of host memory that the GPU can read directly.
class WeightUpload {
  public:
    WeightUpload(Backend& backend, Stream stream);

    /// `target` is packed and has the same number of elements. The write is complete when this returns.
    void write(std::span<const float> values, const Tensor& target);

  private:
    static constexpr std::size_t piece_bytes = std::size_t{64} << 20;

    Backend& backend_;
    Stream stream_;
    MemoryBlock piece_;  // none on a CPU
};

}  // namespace drover
