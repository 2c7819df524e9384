#pragma once

#include <cstddef>
#include <string_view>

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

    /// Likewise for copies, which are not operations.
    virtual void begin_copy(std::size_t /*bytes*/, Stream) {}
    virtual void end_copy(std::size_t /*bytes*/, Stream) {}
    /// And for the scopes around them (see Scope), which nest.
    virtual void begin_scope(std::string_view /*name*/, int /*number*/, Stream) {}
    virtual void end_scope(Stream) {}
};

}  // namespace drover
