#pragma once

#include "backend/backend.h"

namespace drover {

/// For backends that do everything at once.
class NoFence final : public Fence {
  public:
    void put(Stream) override {}
    void hold(Stream) override {}
    void wait() override {}
};

}  // namespace drover
