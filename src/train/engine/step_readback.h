#pragma once

#include "backend/backend.h"

namespace drover {

/// Copies a step's numbers to the host while the device continues.
class StepReadback {
  public:
    explicit StepReadback(Backend& backend);

    /// Reads `scalars` ([StepScalar::count] f32) and `loss` ([1] f64) as they are at this point of the
    /// stream. They must not be written before wait() has returned.
    void begin(Stream stream, const Tensor& scalars, const Tensor& loss);
    /// Waits until the numbers have arrived, but not for work enqueued after begin().
    void wait() { arrived_->wait(); }

    double loss() const;
    float scalar(StepScalar::Index index) const;

  private:
    Backend& backend_;
    MemoryBlock staging_;  // the loss, then the scalars
    std::unique_ptr<Fence> made_, arrived_;
};

}  // namespace drover
