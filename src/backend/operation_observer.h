#pragma once

#include "backend/ops/operation.h"
#include "backend/stream.h"

namespace drover {

/// Is notified of every operation that a backend runs, on the host thread that runs it: begin() before the
/// work is enqueued on the stream and end() after. On a device whose streams run ahead of the host, an
/// observer takes its times from marks that it puts into the stream at these two places, not from the host's
/// clock.
class OperationObserver {
  public:
    virtual ~OperationObserver() = default;

    virtual void begin(const OperationCost& cost, Stream stream) = 0;
    virtual void end(const OperationCost& cost, Stream stream) = 0;
};

}  // namespace drover
