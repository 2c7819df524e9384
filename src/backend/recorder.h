#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "backend/stream.h"

namespace drover {

/// Tells the sequences of a recorder apart.
using RecordingKey = std::array<std::int64_t, 4>;

/// Enqueues sequences of operations that recur. A device may record a sequence and later replay it as a
/// whole, which costs the host much less than enqueueing one operation after the other. This base class
/// records nothing.
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
    /// How often a recorded sequence was replayed.
    virtual std::int64_t replays() const { return 0; }
};

}  // namespace drover
