#pragma once

#include "backend/backend.h"

namespace drover {

/// Brings a step's numbers to the host while the device goes on.
class StepReadback {
  public:
    explicit StepReadback(Backend& backend);

    /// Reads `scalars` ([StepScalar::count] f32) and `loss` ([1] f64) as they are when the stream comes to
    /// here. They must not be written before wait() has returned.
    void begin(Stream stream, const Tensor& scalars, const Tensor& loss);
    /// Waits until the numbers are here; not for what was enqueued behind begin().
    void wait() { arrived_->wait(); }

    double loss() const;
    float scalar(StepScalar::Index index) const;

  private:
    Backend& backend_;
    MemoryBlock staging_;  // the loss, then the scalars
    std::unique_ptr<Fence> made_, arrived_;
};

}  // namespace drover
