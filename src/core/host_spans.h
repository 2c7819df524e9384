#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// What the threads of one rank do on the host, and when, for profiles. Thread-safe.
class HostSpans {
  public:
    using Clock = std::chrono::steady_clock;

    struct Span {
        std::string thread;
        std::string name;
        Clock::time_point begin, end;
    };

    /// Spans are kept from now on.
    void start();
    /// Those since start(), in no order. Those that were open then begin there; those that are still open end
    /// now. From here on spans cost a test, and none is kept.
    std::vector<Span> stop();

  private:
    friend class HostSpan;
    using Open = std::list<Span>::iterator;

    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
    Open open(std::string_view thread, std::string name);
    void close(Open span);

    std::atomic<bool> stopped_ = false;
    std::mutex mutex_;  // guards what follows
    std::list<Span> open_, closed_;
    bool keeps_ = false;
    Clock::time_point started_;
};

/// This thread's HostSpan are those of a rank, under this name, as long as the object lives. Both may be
/// absent: then they are nobody's.
class HostThread {
  public:
    HostThread(std::shared_ptr<HostSpans> spans, std::string_view name);
    ~HostThread();
    HostThread(const HostThread&) = delete;
    HostThread& operator=(const HostThread&) = delete;

    /// The rank that this thread belongs to; null: none. For the threads that it starts.
    static std::shared_ptr<HostSpans> rank();

  private:
    std::shared_ptr<HostSpans> spans_;
};

/// A stretch of work of this thread, from here to the end of the object: "wait for data". Where nobody
/// profiles, or no longer, it costs a test.
class [[nodiscard]] HostSpan {
  public:
    /// Below 0: no number.
    explicit HostSpan(std::string_view name, std::int64_t number = -1);
    ~HostSpan();
    HostSpan(const HostSpan&) = delete;
    HostSpan& operator=(const HostSpan&) = delete;

  private:
    std::shared_ptr<HostSpans> spans_;
    HostSpans::Open span_;
};

}  // namespace drover
