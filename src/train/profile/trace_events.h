#pragma once

#include <string>
#include <string_view>

#include "train/profile/profile_data.h"

namespace drover {

/// Chrome's traces count microseconds.
inline constexpr double trace_units_per_second = 1e6;

/// What stands around the events of a file in Chrome's trace format, which Perfetto reads.
inline constexpr std::string_view trace_begin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
inline constexpr std::string_view trace_end = "\n]}\n";
/// Between the events of two ranks.
inline constexpr std::string_view trace_separator = ",\n";

/// The events of one rank, which is a process of the trace: a thread for each lane, a complete event for each
/// span.
std::string trace_events(const RankProfile& profile);

}  // namespace drover
