#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_error.h"
#include "backend/fence.h"

namespace drover::cuda {

class EventFence final : public Fence {
  public:
    EventFence() {
        check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event cannot be made");
    }
    ~EventFence() override { cudaEventDestroy(event_); }
    EventFence(const EventFence&) = delete;
    EventFence& operator=(const EventFence&) = delete;

    void put(Stream stream) override {
        check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream.handle)), "an event");
    }
    void hold(Stream stream) override {
        check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle), event_), "an event");
    }
    void wait() override { check(cudaEventSynchronize(event_), "an operation"); }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace drover::cuda
