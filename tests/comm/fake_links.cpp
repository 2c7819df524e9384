#include "comm/fake_links.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "comm/threads/thread_world.h"

namespace drover::test {

/// Links by the numbers their ids start with.
class FakeNetwork {
  public:
    struct Meeting {
        std::shared_ptr<ThreadWorld> ranks;
        std::atomic<int> joined = 0;
    };

    LinkId make_id() {
        const std::lock_guard lock(mutex_);
        ++last_;
        LinkId id{};
        std::memcpy(id.data(), &last_, sizeof last_);
        return id;
    }
    std::shared_ptr<Meeting> meet(const LinkId& id, int size) {
        const std::lock_guard lock(mutex_);
        auto& meeting = meetings_[id];
        if (meeting == nullptr) {
            meeting = std::make_shared<Meeting>();
            meeting->ranks = std::make_shared<ThreadWorld>(size);
        }
        ++meeting->joined;
        return meeting;
    }

  private:
    std::mutex mutex_;
    std::int64_t last_ = 0;
    std::map<LinkId, std::shared_ptr<Meeting>> meetings_;
};

std::shared_ptr<FakeNetwork> make_fake_network() {
    return std::make_shared<FakeNetwork>();
}

namespace {

/// Counts how often it was recorded and how often it was passed; a timed one knows when it was last passed.
class FakeEvent {
  public:
    using Clock = std::chrono::steady_clock;

    explicit FakeEvent(bool timed) : timed_(timed) {}
    std::int64_t record() {
        const std::lock_guard lock(mutex_);
        return ++recorded_;
    }
    std::int64_t last_record() {
        const std::lock_guard lock(mutex_);
        return recorded_;
    }
    void pass(std::int64_t record) {
        {
            const std::lock_guard lock(mutex_);
            passed_ = std::max(passed_, record);
            passed_at_ = Clock::now();
        }
        changed_.notify_all();
    }
    void wait_for(std::int64_t record) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return passed_ >= record; });
    }
    bool has_passed() {
        const std::lock_guard lock(mutex_);
        return passed_ == recorded_;
    }
    /// As in CUDA: the time of an event that was passed since it was last recorded.
    Clock::time_point time() {
        const std::lock_guard lock(mutex_);
        require(timed_ && recorded_ > 0 && passed_ == recorded_, "the time of an event that has none");
        return passed_at_;
    }

  private:
    const bool timed_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t recorded_ = 0, passed_ = 0;
    Clock::time_point passed_at_;
};

FakeEvent& event_of(GpuEvent event) {
    return *static_cast<FakeEvent*>(event);
}

void perform(Communicator& axis, const CollectiveCall& call) {
    const auto tensor = [&](const std::byte* data, std::int64_t count) {
        return Tensor(const_cast<std::byte*>(data), call.dtype, {count});
    };
    const Tensor from = tensor(call.from, call.count), to = tensor(call.to, call.count);
    const std::int64_t part = call.count / axis.size();
    switch (call.kind) {
        case CollectiveKind::all_reduce:
            return axis.all_reduce({}, to, call.reduction);
        case CollectiveKind::reduce_scatter:
            return axis.reduce_scatter({}, from, tensor(call.to, part));
        case CollectiveKind::all_gather:
            return axis.all_gather({}, tensor(call.from, part), to);
        case CollectiveKind::broadcast:
            return axis.broadcast({}, to, call.peer);
        case CollectiveKind::all_to_all: {
            const auto sum = [](std::span<const std::int64_t> counts) {
                return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
            };
            return axis.all_to_all({}, tensor(call.from, sum(call.counts_to)), call.counts_to,
                                   tensor(call.to, sum(call.counts_from)), call.counts_from);
        }
        case CollectiveKind::barrier:
            return axis.barrier({});
        case CollectiveKind::send:
            return axis.send({}, from, call.peer);
        case CollectiveKind::receive:
            return axis.receive({}, to, call.peer);
    }
}

class FakeLink final : public GpuLink {
  public:
    FakeLink(std::shared_ptr<FakeNetwork::Meeting> meeting, int size, int rank,
             std::shared_ptr<std::atomic<bool>> broken, std::shared_ptr<std::atomic<int>> enqueued)
        : meeting_(std::move(meeting)),
          size_(size),
          broken_(std::move(broken)),
          enqueued_(std::move(enqueued)),
          world_(meeting_->ranks->join(rank)) {
        std::vector<int> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), 0);
        axis_ = world_->make_communicator("fake", ranks, SingleRankAxis::copies);
        thread_ = std::thread([this] { run(); });
    }
    ~FakeLink() override {
        push({});
        thread_.join();
    }

    bool settled() override {
        if (*broken_) throw Error("NCCL failed.", "Mend it.");
        if (lost_) throw Error("NCCL lost a rank.");
        return meeting_->joined == size_;
    }
    void follow(GpuEvent event) override {
        push([&followed = event_of(event), record = event_of(event).last_record()] {
            followed.wait_for(record);
        });
    }
    void record(GpuEvent event) override {
        push([&recorded = event_of(event), record = event_of(event).record()] { recorded.pass(record); });
    }
    /// As with NCCL, the operands' lists of counts live only during the call.
    void enqueue(std::span<const CollectiveCall> calls) override {
        ++*enqueued_;
        for (const CollectiveCall& call : calls)
            push([this, call = call, to = std::vector(call.counts_to.begin(), call.counts_to.end()),
                  from = std::vector(call.counts_from.begin(), call.counts_from.end())] {
                CollectiveCall own = call;
                own.counts_to = to;
                own.counts_from = from;
                if (!aborted_) perform(*axis_, own);
            });
    }
    void finish() override {}
    void abort() noexcept override {
        {
            const std::lock_guard lock(mutex_);
            aborted_ = true;
        }
        changed_.notify_all();
        world_->fail("aborted");
    }

  private:
    void push(std::function<void()> work) {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        }
        changed_.notify_all();
    }
    void run() {
        for (;;) {
            std::function<void()> work;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !queue_.empty(); });
                work = std::move(queue_.front());
                queue_.pop_front();
            }
            if (!work) return;
            try {
                work();
            } catch (const Error&) {
                // A collective that lacks a rank never ends, unless it is aborted.
                lost_ = true;
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return aborted_.load(); });
            }
        }
    }

    std::shared_ptr<FakeNetwork::Meeting> meeting_;
    const int size_;
    std::shared_ptr<std::atomic<bool>> broken_;
    std::shared_ptr<std::atomic<int>> enqueued_;
    std::atomic<bool> aborted_ = false, lost_ = false;
    std::unique_ptr<World> world_;
    std::unique_ptr<Communicator> axis_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::thread thread_;
};

}  // namespace

LinkId FakeLinks::make_id() {
    return network_->make_id();
}
std::unique_ptr<GpuLink> FakeLinks::join(const LinkId& id, int size, int rank) {
    ++links_made_;
    return std::make_unique<FakeLink>(network_->meet(id, size), size, rank, broken_, enqueued_);
}
GpuEvent FakeLinks::make_event() {
    return new FakeEvent(false);
}
GpuEvent FakeLinks::make_timed_event() {
    ++timed_events_made_;
    return new FakeEvent(true);
}
void FakeLinks::free_event(GpuEvent event) noexcept {
    delete &event_of(event);
}
void FakeLinks::record(Stream, GpuEvent event) {
    FakeEvent& recorded = event_of(event);
    recorded.pass(recorded.record());
}
void FakeLinks::wait(Stream, GpuEvent event) {
    event_of(event).wait_for(event_of(event).last_record());
}
bool FakeLinks::passed(GpuEvent event) {
    return event_of(event).has_passed();
}
double FakeLinks::seconds_between(GpuEvent first, GpuEvent second) {
    return std::chrono::duration<double>(event_of(second).time() - event_of(first).time()).count();
}

}  // namespace drover::test
