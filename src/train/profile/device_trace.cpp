#include "train/profile/device_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/dtype.h"

namespace drover {

void DeviceTrace::start() {
    streams_ = {backend_.main_stream().handle};
    lanes_.clear();
    entries_.clear();
    open_.clear();
    read_ = 0;
    backend_.observe(this);
    observes_ = true;
}

void DeviceTrace::stop() {
    if (std::exchange(observes_, false)) backend_.observe(nullptr);
}

std::size_t DeviceTrace::lane_of(Stream stream) {
    const auto found = std::find(streams_.begin(), streams_.end(), stream.handle);
    if (found != streams_.end()) return static_cast<std::size_t>(found - streams_.begin());
    streams_.push_back(stream.handle);
    return streams_.size() - 1;
}

int DeviceTrace::scope_around(std::size_t lane) const {
    for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope)
        if (entries_[*scope].lane == lane) return static_cast<int>(*scope);
    return -1;
}

void DeviceTrace::end(const OperationCost& cost, Stream stream) {
    const std::size_t lane = lane_of(stream);
    entries_.push_back({.name = cost.name,
                        .kind = ProfileSpan::Kind::operation,
                        .number = -1,
                        .cost = cost,
                        .lane = lane,
                        .parent = scope_around(lane),
                        .begin = running_since_,
                        .end = backend_.mark(stream)});
}

void DeviceTrace::end_copy(std::size_t bytes, Stream stream) {
    const std::size_t lane = lane_of(stream);
    entries_.push_back({.name = "copy",
                        .kind = ProfileSpan::Kind::copy,
                        .number = -1,
                        .cost = {.name = "copy", .bytes = 2 * static_cast<double>(bytes)},
                        .lane = lane,
                        .parent = scope_around(lane),
                        .begin = running_since_,
                        .end = backend_.mark(stream)});
}

void DeviceTrace::begin_scope(std::string_view name, int number, Stream stream) {
    const std::size_t lane = lane_of(stream);
    const int parent = scope_around(lane);
    open_.push_back(entries_.size());
    entries_.push_back({.name = name,
                        .kind = ProfileSpan::Kind::scope,
                        .number = number,
                        .cost = {},
                        .lane = lane,
                        .parent = parent,
                        .begin = backend_.mark(stream),
                        .end = 0});
}

void DeviceTrace::end_scope(Stream stream) {
    // A scope that was begun before start() is not known here.
    if (open_.empty()) return;
    entries_[open_.back()].end = backend_.mark(stream);
    open_.pop_back();
}

void DeviceTrace::read() {
    require(open_.empty(), "a profile is read within a scope");
    lanes_.resize(streams_.size());
    std::vector<int> places(entries_.size());  // of the entries in their lanes
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Entry& entry = entries_[i];
        std::vector<ProfileSpan>& spans = lanes_[entry.lane].spans;
        places[i] = static_cast<int>(spans.size());
        spans.push_back({.name = entry.number < 0 ? std::string(entry.name)
                                                  : fmt::format("{} {}", entry.name, entry.number),
                         .kind = entry.kind,
                         .begin = zero_ + backend_.seconds_between(zero_mark_, entry.begin),
                         .end = zero_ + backend_.seconds_between(zero_mark_, entry.end),
                         .parent = entry.parent < 0 ? -1 : places[static_cast<std::size_t>(entry.parent)],
                         .flops = entry.cost.flops,
                         .bytes = entry.cost.bytes,
                         .arithmetic = entry.cost.flops > 0 ? std::string(name_of(entry.cost.arithmetic))
                                                            : std::string()});
    }
    read_ += entries_.size();
    entries_.clear();
}

std::vector<ProfileLane> DeviceTrace::take() {
    read();
    const bool on_device = backend_.device() != Device::cpu;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        lanes_[i].on_device = on_device;
        lanes_[i].name = !on_device                                     ? "operations"
                         : i == 0                                       ? "main stream"
                         : streams_[i] == backend_.copy_stream().handle ? "copy stream"
                                                                        : fmt::format("stream {}", i);
    }
    return std::exchange(lanes_, {});
}

}  // namespace drover
