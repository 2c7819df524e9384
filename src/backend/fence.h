#pragma once

#include "backend/stream.h"

namespace drover {

/// A point in a stream. Putting it again moves it to the new point.
class Fence {
  public:
    virtual ~Fence() = default;
    virtual void put(Stream stream) = 0;
    /// Later work on this stream waits until the point has been passed. Does nothing if it was never put.
    virtual void hold(Stream stream) = 0;
    /// Blocks the host until the point has been passed. Returns at once if it was never put.
    virtual void wait() = 0;
};

/// For backends that do everything at once.
class NoFence final : public Fence {
  public:
    void put(Stream) override {}
    void hold(Stream) override {}
    void wait() override {}
};

}  // namespace drover
