#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/collective_call.h"

namespace drover {

/// Collectives of one kind that ran together, or a message, as one rank saw them.
struct ObservedCollective {
    std::string_view axis;
    CollectiveKind kind = CollectiveKind::barrier;
    int calls = 1;
    std::size_t sent_bytes = 0;  ///< by this rank
    int ranks = 0;               ///< of the axis
    int peer = -1;               ///< the other end of a message, within the axis
    bool on_device = false;      ///< on a GPU's stream; otherwise by the communication thread
    /// From its turn to its end: moving, adding, and waiting for ranks that arrive later.
    std::chrono::steady_clock::time_point begin, end;
};

/// What becomes of collectives that are under way when the observer changes.
enum class UnderWay : std::uint8_t {
    told,  ///< they are told to the old observer: the host waits for their end
    left,  ///< nobody is told, and nothing waits: other ranks may never come to them
};

/// Is told of every collective and message that is done. From any thread, one at a time for each transport.
class CollectiveObserver {
  public:
    virtual ~CollectiveObserver() = default;
    virtual void done(const ObservedCollective& collective) = 0;
};

}  // namespace drover
