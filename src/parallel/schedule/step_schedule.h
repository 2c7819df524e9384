#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace drover {

enum class PipelineScheduleKind : std::uint8_t {
    one_forward_one_backward,  ///< with several chunks: interleaved
    zero_bubble,
    forward_only,  ///< evaluation
};

/// "1F1B", "interleaved 1F1B", "zero bubble", "forward only".
std::string_view name_of(PipelineScheduleKind kind, int chunks);

/// How a pipeline cuts the model and orders an update.
struct PipelineSettings {
    PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
    int chunks = 1;           ///< parts of the model per rank ("virtual stages")
    /// The most in an update, for the plan. Unless it is said, any number.
    int micro_batches = std::numeric_limits<int>::max();
    std::vector<int> cuts{};  ///< the first block of every stage but the first; empty: evenly
};

/// What every rank does in an update, transfers included, for any number of micro-batches. With several
/// chunks the ranks take turns of P micro-batches: the schedule is that of the next multiple of P, without
/// the micro-batches that do not exist. It comes to its end with `transfer_buffers` messages on the way.
PipelineSchedule step_schedule(PipelineScheduleKind kind, const PipelineShape& shape);

/// How many messages of a kind a rank may have sent before they are received.
inline constexpr int transfer_buffers = 2;

/// Both parts of every backward at once, in the place of the first: what zero bubble becomes where weight
/// gradients cannot wait.
PipelineSchedule with_whole_backwards(const PipelineSchedule& schedule);

}  // namespace drover
