#pragma once

#include "backend/backend.h"

namespace drover {

/// For backends where everything is done when it is asked for.
class NoFence final : public Fence {
  public:
    void put(Stream) override {}
    void hold(Stream) override {}
    void wait() override {}
};

}  // namespace drover
