#pragma once

#include "parallel/schedule/schedule.h"

namespace drover {

/// The schedule with a send after every computation whose result another rank reads, and the receive in that
/// rank's list. Whoever sends also places the receive, so messages from one rank to another are received in
/// the order in which they were sent. Activations and gradients are counted apart: each kind needs a channel
/// of its own. Receives come early: the pass walks through all ranks by turns, an action at a time, and notes
/// each receive where the walk is. Gathers and reductions are steps of that walk too, so they are better
/// added afterwards. The schedule has passed check_computation and has no transfers yet. Error when its
/// computations wait for each other.
PipelineSchedule with_transfers(const PipelineSchedule& schedule);

/// The same with every receive moved to just before the computation that reads it, for ranks that do nothing
/// else while they receive.
PipelineSchedule with_late_receives(const PipelineSchedule& schedule);

/// The most messages that a rank has received, or made room for, before a computation reads them.
struct UnreadMessages {
    std::vector<int> activations, gradients;  ///< of each rank
};

UnreadMessages most_unread_messages(const PipelineSchedule& schedule);

/// The receive that belongs to a send, on the rank of its stage.
PipelineAction receive_of(const PipelineAction& send);

/// The send that belongs to a receive.
PipelineAction send_of(const PipelineAction& receive);

}  // namespace drover
