#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "comm/communication_thread.h"
#include "comm/nccl/link_operation.h"

namespace drover {

/// Times of a rank's collectives by the clock of its GPU, and how long streams waited for them. The events
/// are read after the GPU has passed them, so measuring delays nothing; without measuring there are no timed
/// events.
class LinkTimes {
  public:
    LinkTimes(GpuLinks& gpu, bool measured) : gpu_(gpu), measured_(measured) {}
    ~LinkTimes();
    LinkTimes(const LinkTimes&) = delete;
    LinkTimes& operator=(const LinkTimes&) = delete;

    /// For the begin or the end of operations.
    GpuEvent make_event() { return measured_ ? gpu_.make_timed_event() : gpu_.make_event(); }
    /// From now on `observer` is told of everything that add() is; null: no observer. Waits for the stream.
    void observe(CollectiveObserver* observer, Stream stream);
    /// The GPU has passed the operation's end. A message is not a collective.
    void add(const LinkOperation& operation);

    /// The stream continues when the operation is done. Only the first wait for it is timed: the calls of a
    /// group are waited for one by one, but only the first of them can take any time.
    void hold_stream(Stream stream, LinkOperation& operation);
    /// Adds up the waits that streams have finished; returns whether those were all.
    bool collect_waits();

    CommunicationTimes sums();

  private:
    /// On the waiting stream, with nothing but the wait between them.
    struct Wait {
        GpuEvent before = nullptr;
        GpuEvent after = nullptr;
    };
    Wait* take();
    void tell_observer(const LinkOperation& operation, double seconds);

    GpuLinks& gpu_;
    const bool measured_;
    std::mutex mutex_;  // guards what follows
    CommunicationTimes sums_;
    CollectiveObserver* observer_ = nullptr;
    GpuEvent reference_ = nullptr;  // passed at reference_time_
    LinkOperation::Clock::time_point reference_time_;
    std::deque<Wait> waits_;  // all that were ever needed at once
    std::vector<Wait*> free_;
    std::deque<Wait*> under_way_;
};

}  // namespace drover
