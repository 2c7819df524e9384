#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "backend/stream.h"

namespace drover {

/// Tells the sequences of a recorder apart.
using RecordingKey = std::array<std::int64_t, 4>;

/// Enqueues sequences of operations that come again and again. A device may remember a sequence and, the next
/// times, be given all of it at once, which costs the host much less than one operation after the other.
/// This one remembers nothing.
class Recorder {
  public:
    Recorder() = default;
    virtual ~Recorder() = default;
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// Enqueues on the stream what `enqueue` enqueues. For equal keys that must be the same operations with
    /// the same operands, so what differs from time to time must come from the device's memory. `enqueue` may
    /// be called once, twice or not at all; it runs operations on this stream and waits for nothing.
    virtual void run(Stream, const RecordingKey&, const std::function<void()>& enqueue) { enqueue(); }
    /// How often a sequence was given to the device from memory.
    virtual std::int64_t replays() const { return 0; }
};

}  // namespace drover
