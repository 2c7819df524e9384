#include "comm/nccl/link_times.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/collectives.h"

namespace drover {

LinkTimes::~LinkTimes() {
    if (reference_ != nullptr) gpu_.free_event(reference_);
    for (const Wait& wait : waits_)
        for (const GpuEvent event : {wait.before, wait.after})
            if (event != nullptr) gpu_.free_event(event);
}

void LinkTimes::observe(CollectiveObserver* observer, Stream stream) {
    require(measured_, "collectives on a GPU are observed without being measured");
    const std::lock_guard lock(mutex_);
    observer_ = observer;
    if (observer == nullptr) return;
    if (reference_ == nullptr) reference_ = gpu_.make_timed_event();
    gpu_.record(stream, reference_);
    while (!gpu_.passed(reference_)) std::this_thread::yield();
    reference_time_ = LinkOperation::Clock::now();
}

/// With the mutex held.
void LinkTimes::tell_observer(const LinkOperation& operation, double seconds) {
    using Clock = LinkOperation::Clock;
    const auto of = [](double time) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time));
    };
    const Group& group = *operation.group;
    const Clock::time_point begin = reference_time_ + of(gpu_.seconds_between(reference_, operation.began));
    // Calls that run together have one begin and one end.
    std::vector<CollectiveKind> told;
    for (const CollectiveCall& first : operation.calls) {
        if (std::find(told.begin(), told.end(), first.kind) != told.end()) continue;
        told.push_back(first.kind);
        ObservedCollective collective{.axis = group.axis,
                                      .kind = first.kind,
                                      .calls = 0,
                                      .ranks = group.size(),
                                      .peer = first.is_message() ? first.peer : -1,
                                      .on_device = true,
                                      .begin = begin,
                                      .end = begin + of(seconds)};
        for (const CollectiveCall& call : operation.calls)
            if (call.kind == first.kind) {
                ++collective.calls;
                collective.sent_bytes += sent_bytes(call, group.size(), group.rank);
            }
        observer_->done(collective);
    }
}

void LinkTimes::add(const LinkOperation& operation) {
    if (!measured_) return;
    const double seconds = gpu_.seconds_between(operation.began, operation.done);
    const std::lock_guard lock(mutex_);
    if (observer_ != nullptr) tell_observer(operation, seconds);
    if (operation.calls.front().is_message()) return;
    sums_.collectives += static_cast<std::int64_t>(operation.calls.size());
    sums_.busy_seconds += seconds;
}

LinkTimes::Wait* LinkTimes::take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        Wait& made = waits_.emplace_back();
        made.before = gpu_.make_timed_event();
        made.after = gpu_.make_timed_event();
        return &made;
    }
    Wait* wait = free_.back();
    free_.pop_back();
    return wait;
}

void LinkTimes::hold_stream(Stream stream, LinkOperation& operation) {
    if (!measured_ || std::exchange(operation.has_held_stream, true))
        return gpu_.wait(stream, operation.done);
    Wait* wait = take();
    gpu_.record(stream, wait->before);
    gpu_.wait(stream, operation.done);
    gpu_.record(stream, wait->after);
    const std::lock_guard lock(mutex_);
    under_way_.push_back(wait);
}

bool LinkTimes::collect_waits() {
    const std::lock_guard lock(mutex_);
    while (!under_way_.empty() && gpu_.passed(under_way_.front()->after)) {
        Wait* wait = under_way_.front();
        under_way_.pop_front();
        sums_.waited_seconds += gpu_.seconds_between(wait->before, wait->after);
        free_.push_back(wait);
    }
    return under_way_.empty();
}

CommunicationTimes LinkTimes::sums() {
    const std::lock_guard lock(mutex_);
    return sums_;
}

}  // namespace drover
