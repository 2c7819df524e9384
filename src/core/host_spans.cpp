#include "core/host_spans.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace drover {
namespace {

/// Which rank a thread works for is known only to the thread: several ranks may live in one process.
struct Here {
    std::shared_ptr<HostSpans> spans;
    std::string name;
};

Here& here() {
    static thread_local Here of_thread;
    return of_thread;
}

}  // namespace

void HostSpans::start() {
    const std::lock_guard lock(mutex_);
    stopped_ = false;
    keeps_ = true;
    started_ = Clock::now();
    closed_.clear();
}

std::vector<HostSpans::Span> HostSpans::stop() {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    std::vector<Span> spans(std::make_move_iterator(closed_.begin()), std::make_move_iterator(closed_.end()));
    spans.insert(spans.end(), open_.begin(), open_.end());
    for (Span& span : spans) {
        span.begin = std::max(span.begin, started_);
        span.end = std::min(span.end, now);
    }
    closed_.clear();
    keeps_ = false;
    stopped_ = true;
    return spans;
}

HostSpans::Open HostSpans::open(std::string_view thread, std::string name) {
    const std::lock_guard lock(mutex_);
    return open_.insert(open_.end(), {.thread = std::string(thread),
                                      .name = std::move(name),
                                      .begin = Clock::now(),
                                      .end = Clock::time_point::max()});
}

void HostSpans::close(Open span) {
    const std::lock_guard lock(mutex_);
    span->end = Clock::now();
    if (keeps_)
        closed_.splice(closed_.end(), open_, span);
    else
        open_.erase(span);
}

HostThread::HostThread(std::shared_ptr<HostSpans> spans, std::string_view name) : spans_(std::move(spans)) {
    if (spans_) here() = {spans_, std::string(name)};
}

HostThread::~HostThread() {
    // It may be destroyed on another thread, or after another one has taken its place.
    if (spans_ && here().spans == spans_) here() = {};
}

std::shared_ptr<HostSpans> HostThread::rank() {
    return here().spans;
}

HostSpan::HostSpan(std::string_view name, std::int64_t number) {
    const Here& thread = here();
    if (!thread.spans || thread.spans->stopped()) return;
    spans_ = thread.spans;
    std::string text(name);
    if (number >= 0) text += ' ' + std::to_string(number);
    span_ = spans_->open(thread.name, std::move(text));
}

HostSpan::~HostSpan() {
    if (spans_) spans_->close(span_);
}

}  // namespace drover
