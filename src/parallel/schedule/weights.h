#pragma once

#include "parallel/schedule/schedule.h"

namespace drover {

/// How many chunks of a rank have their whole weights at a time, where weights are sharded.
struct GatherPolicy {
    int most_gathered = 3;  ///< the chunk that computes and those that compute next
    int look_ahead = 3;     ///< of these, how many are gathered before they compute; at least 1
};

/// The schedule with gathers and releases of weights: before every computation the chunks that compute next,
/// up to the look-ahead, are gathered, and those that are not among the next `most_gathered` released. At the
/// end all are released.
PipelineSchedule with_gathers(const PipelineSchedule& schedule, const GatherPolicy& policy = {});

/// The schedule with the reduction of each chunk's gradients after its last backward, and after the send that
/// follows that.
PipelineSchedule with_reductions(const PipelineSchedule& schedule);

}  // namespace drover
