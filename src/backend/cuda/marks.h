#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {

/// Events in streams, for timing. Forgotten ones are reused.
class Marks {
  public:
    Marks() = default;
    ~Marks() {
        for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    }
    Marks(const Marks&) = delete;
    Marks& operator=(const Marks&) = delete;

    std::size_t put(cudaStream_t stream) {
        if (used_ == events_.size())
            check(cudaEventCreate(&events_.emplace_back()), "an event cannot be made");
        check(cudaEventRecord(events_[used_], stream), "an event");
        return used_++;
    }
    /// Waits until both have been passed.
    double seconds_between(std::size_t first, std::size_t second) {
        float milliseconds = 0;
        check(cudaEventSynchronize(events_[first]), "an operation");
        check(cudaEventSynchronize(events_[second]), "an operation");
        check(cudaEventElapsedTime(&milliseconds, events_[first], events_[second]), "an event");
        return static_cast<double>(milliseconds) / 1000;
    }
    void forget() { used_ = 0; }

  private:
    std::vector<cudaEvent_t> events_;
    std::size_t used_ = 0;
};

}  // namespace drover::cuda
