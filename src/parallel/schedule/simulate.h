#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"

namespace drover {

/// How long the actions of a stage take, in any unit. `backward` takes both of its parts' times.
struct StageTimes {
    double forward = 1;
    double backward_input = 1;
    double backward_weight = 1;
    double gather = 0;
    double reduce_gradients = 0;
};

/// Who waits for a message.
enum class ReceiveRule {
    reader_waits,  ///< the computation that reads it; a receive only makes room for it
    rank_waits,    ///< the rank, which stops at the receive: what can run so can run in any way
};

struct PipelineTimes {
    std::vector<StageTimes> stages = std::vector<StageTimes>(1);  ///< one for all stages, or one for each
    double transfer = 0;                                          ///< of a message from one rank to another
    int buffers = 2;  ///< messages that a rank may have sent, of a kind, before they are received
    ReceiveRule receives = ReceiveRule::reader_waits;
};

struct TimedAction {
    PipelineAction action;
    double start, end;
};

/// When a schedule does what.
struct PipelineTimeline {
    std::vector<std::vector<TimedAction>> ranks;
    double makespan = 0;
    std::vector<double> bubble;  ///< of each rank: the time in which it does not compute

    /// The bubbles of all ranks together, and their part of the ranks' time.
    double whole_bubble() const;
    double bubble_fraction() const;
};

/// Runs the schedule on paper. A rank does its actions one after another. A message begins its way at its
/// send and takes a buffer until it has arrived and the other rank has come to its receive; a rank waits at a
/// send while all buffers are taken. Messages go beside computation, those of a kind between two ranks one
/// after the other; so do gathers and reductions, one at a time per rank. Where the schedule has no transfers
/// at all, a computation waits for those that it needs, and a transfer's time after them.
///
/// The schedule has passed check_computation. Error if it cannot come to its end, with the actions that wait
/// for each other; if messages are received in another order than they are sent, or not at all; and if a
/// chunk computes without its weights or reduces before its last backward.
///
/// A schedule that comes to its end here does so in any program that has these buffers, whatever the times:
/// which action waits for which does not depend on them.
PipelineTimeline simulate(const PipelineSchedule& schedule, const PipelineTimes& times = {});

}  // namespace drover
