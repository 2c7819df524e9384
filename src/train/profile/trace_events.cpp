#include "train/profile/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/json.h"

namespace drover {
namespace {

std::string_view category(ProfileSpan::Kind kind) {
    switch (kind) {
        case ProfileSpan::Kind::host:
            return "host";
        case ProfileSpan::Kind::scope:
            return "scope";
        case ProfileSpan::Kind::operation:
            return "operation";
        case ProfileSpan::Kind::copy:
            return "copy";
        case ProfileSpan::Kind::collective:
            return "collective";
    }
    bug("unknown kind of span");
}

std::int64_t in_nanoseconds(double seconds) {
    return std::llround(std::max(seconds, 0.0) * 1e9);
}

class Events {
  public:
    explicit Events(int process) : process_(process) {}

    void name(std::string_view what, int thread, const std::string& value) {
        next();
        fmt::format_to(out(), "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"{}\":{}}}}}",
                       process_, thread, what, what == "process_labels" ? "labels" : "name",
                       Json(value).dump());
    }
    void order(std::string_view what, int thread, int place) {
        next();
        fmt::format_to(
            out(), "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"sort_index\":{}}}}}",
            process_, thread, what, place);
    }
    void span(int thread, const ProfileSpan& span) {
        next();
        // Both ends are rounded, so that what lies in a span still does: viewers drop what overlaps its end.
        const std::int64_t begin = in_nanoseconds(span.begin), length = in_nanoseconds(span.end) - begin;
        fmt::format_to(out(),
                       "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},\"name\":{},"
                       "\"cat\":\"{}\"",
                       process_, thread, begin / 1000, begin % 1000, length / 1000, length % 1000,
                       Json(span.name).dump(), category(span.kind));
        if (span.kind == ProfileSpan::Kind::operation || span.kind == ProfileSpan::Kind::copy)
            fmt::format_to(out(), ",\"args\":{{\"flops\":{:.0f},\"bytes\":{:.0f},\"arithmetic\":\"{}\"}}",
                           span.flops, span.bytes, span.arithmetic);
        if (span.kind == ProfileSpan::Kind::collective)
            fmt::format_to(out(), ",\"args\":{{\"sent_bytes\":{:.0f},\"calls\":{}}}", span.bytes, span.calls);
        text_ += '}';
    }
    std::string take() { return std::move(text_); }

  private:
    std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
    void next() {
        if (!text_.empty()) text_ += trace_separator;
    }

    int process_;
    std::string text_;
};

}  // namespace

std::string trace_events(const RankProfile& profile) {
    Events events(profile.rank);
    const MeshPlace& place = profile.place;
    events.name(
        "process_name", 0,
        fmt::format("rank {}: pp {}, dcn {}, data {}, tp {} ({}, {})", profile.rank, place.pp, place.dcn,
                    place.data, place.tp, profile.machine, profile.device == Device::cpu ? "CPU" : "GPU"));
    if (profile.rank > 0)
        events.name("process_labels", 0,
                    fmt::format("times within {:.3f} ms of rank 0's", 1e3 * profile.clock_error));
    events.order("process_sort_index", 0, profile.rank);
    int thread = 0;
    const auto begin_lane = [&](const std::string& name) {
        ++thread;
        events.name("thread_name", thread, name);
        events.order("thread_sort_index", thread, thread);
    };
    begin_lane("steps");
    for (const ProfileStep& step : profile.steps)
        events.span(thread,
                    {.name = fmt::format("step {}", step.number), .begin = step.begin, .end = step.end});
    for (const ProfileLane& lane : profile.lanes) {
        begin_lane(lane.name);
        for (const ProfileSpan& span : lane.spans) events.span(thread, span);
    }
    return events.take();
}

}  // namespace drover
