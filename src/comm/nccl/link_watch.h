#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <optional>
#include <thread>

#include "comm/nccl/link_operation.h"
#include "comm/nccl/link_times.h"
#include "comm/world.h"

namespace drover {

/// State shared by the links of one rank: their operations, and a thread that watches them. When an operation
/// waits for too long, or a link or another rank fails, everything is aborted, on the GPU too, so that
/// nothing waits for ever; from then on every call throws the reason.
class LinkWatch {
  public:
    LinkWatch(World& world, GpuLinks& gpu);
    ~LinkWatch();
    LinkWatch(const LinkWatch&) = delete;
    LinkWatch& operator=(const LinkWatch&) = delete;

    World& world() const { return world_; }
    GpuLinks& gpu() const { return gpu_; }

    /// Throws when communication is broken.
    void check();
    /// Aborts because of what was thrown, and tells the other ranks, unless one of them is the reason or
    /// it is already broken. Returns when the links have released all operands.
    void break_off(std::exception_ptr thrown) noexcept;
    /// Likewise, when this rank will not continue.
    void fail(const std::string& reason) noexcept;
    /// The same without telling the others, for the destructor, which has no reason to report.
    void abandon() noexcept;

    /// Connects with the other ranks of the link, all of which must do so. `link.ranks` and `link.rank` are
    /// set. The link must be removed before it is destroyed.
    void connect(WatchedLink& link, const LinkId& id, const std::function<std::string()>& what);
    /// Shuts a link down in order, when nothing is in progress on it. A link that does not end is aborted.
    void remove(WatchedLink& link) noexcept;

    /// An operation with one holder and no calls.
    LinkOperation* take(const Group& group, std::int64_t number);
    /// Adds or removes a holder; without holders the operation is reused once it is done.
    void hold(LinkOperation& operation);
    void release(LinkOperation& operation) noexcept;
    /// It will not be enqueued.
    void cancel(LinkOperation& operation) noexcept;

    /// Hands the operation to the link, after its `ready`. Waits for other ranks only where a connection
    /// must be made first.
    void enqueue(WatchedLink& link, LinkOperation& operation);
    /// The link's later operations come after the operation.
    void follow(WatchedLink& link, LinkOperation& operation);
    /// Later work on the stream comes after the operation, which has been enqueued.
    void hold_stream(Stream stream, LinkOperation& operation) { times_.hold_stream(stream, operation); }
    /// Times of everything so far; the host waits for its end. See WorldOptions::gpu_times.
    CommunicationTimes times();
    /// See LinkTimes. `under_way`: what was enqueued before.
    void observe(CollectiveObserver* observer, Stream stream, UnderWay under_way);
    /// Returns when the GPU has done the work that the operation comes after.
    void wait_ready(LinkOperation& operation);
    /// Returns when the operation has been enqueued.
    void wait_enqueued(LinkOperation& operation);
    /// Whether the GPU is done with the operation, or will never run it.
    bool has_passed(LinkOperation& operation) noexcept;
    /// Returns when the GPU is done with the operation, or everything has been aborted.
    void wait_passed(LinkOperation& operation) noexcept;

  private:
    using Clock = LinkOperation::Clock;
    struct Broken {
        std::string cause;
        std::string remedy;
        int failed_peer = -1;
    };
    /// An operation that waits for too long.
    struct Suspect {
        std::vector<int> ranks;  // the link's other ones
        std::int64_t key = 0;
        std::int64_t call = 0;  // LinkProgress::started when the operation is counted
        CollectiveKind kind = CollectiveKind::barrier;
        std::string text;
        Clock::duration waited{};
    };
    /// How late a failure or the end of an operation may be noticed.
    static constexpr std::chrono::milliseconds watch_period{10};

    void run();
    void look();
    void look_at(WatchedLink& link, std::optional<Suspect>& suspect);
    void retire_passed(WatchedLink& link);
    Suspect suspect_of(const WatchedLink& link, const LinkOperation& operation, std::int64_t call,
                       Clock::duration waited) const;
    [[noreturn]] void throw_timeout(const Suspect& suspect);
    std::string missing(const Suspect& suspect);
    LinkProgress progress_of(std::int64_t key);
    template <class Use>
    auto use(WatchedLink& link, const Use& use);
    void await_failure_message();
    void settle(WatchedLink& link, const std::function<void(Clock::duration)>& too_late);
    void break_down(Broken broken, std::string_view tell) noexcept;
    void abort_links() noexcept;
    Broken reason_of(const std::exception_ptr& thrown, std::string& tell) noexcept;
    void recycle(LinkOperation& operation);
    [[noreturn]] void throw_broken() const;  // with the mutex held

    World& world_;
    GpuLinks& gpu_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::condition_variable wake_;  // of the watching thread
    std::vector<WatchedLink*> links_;
    std::deque<std::unique_ptr<LinkOperation>> operations_;  // all that were ever needed at once
    std::vector<LinkOperation*> free_;
    std::int64_t under_way_ = 0;
    LinkTimes times_;
    std::optional<Broken> broken_;
    bool aborted_ = false;
    bool ending_ = false;

    ProgressNotes notes_;
    std::thread thread_;
};

}  // namespace drover
