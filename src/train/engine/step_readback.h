#pragma once

#include "backend/fence.h"
#include "backend/ops/optimizer.h"
#include "core/arena.h"

namespace drover {

class Backend;

/// Copies a step's numbers to the host while the device continues.
class StepReadback {
  public:
    explicit StepReadback(Backend& backend);

    /// Numbers beside the scalars; StepSum::loss alone where predictions are not counted.
    struct StepSum {
        enum Index : std::size_t { loss, entropy, accuracy, count };
    };

    /// Reads `scalars` ([StepScalar::count] f32) and `sums` ([1] or [StepSum::count] f64) as they are at this
    /// point of the stream. They must not be written before wait() has returned.
    void begin(Stream stream, const Tensor& scalars, const Tensor& sums);
    /// Waits until the numbers have arrived, but not for work enqueued after begin().
    void wait() { arrived_->wait(); }

    double sum(StepSum::Index index) const;
    float scalar(StepScalar::Index index) const;

  private:
    Backend& backend_;
    MemoryBlock staging_;  // the sums, then the scalars
    std::unique_ptr<Fence> made_, arrived_;
};

}  // namespace drover
