#include "comm/nccl/link_times.h"

#include <utility>

namespace drover {

LinkTimes::~LinkTimes() {
    for (const Wait& wait : waits_)
        for (const GpuEvent event : {wait.before, wait.after})
            if (event != nullptr) gpu_.free_event(event);
}

void LinkTimes::add(const LinkOperation& operation) {
    if (!measured_ || operation.calls.front().is_message()) return;
    const double seconds = gpu_.seconds_between(operation.began, operation.done);
    const std::lock_guard lock(mutex_);
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
