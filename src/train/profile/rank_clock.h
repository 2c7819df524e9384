#pragma once

#include <functional>

#include "comm/communicator.h"

namespace drover {

/// The steady clock of this process, in seconds.
double steady_seconds();

/// How far a rank's clock is ahead of the first rank's, in seconds.
struct ClockOffset {
    double ahead = 0;
    double error = 0;  ///< at most, either way: half of the shortest way there and back of a message
};

/// That of this rank's `clock`. Collective; on the host.
ClockOffset compare_with_first(Communicator& everyone, const std::function<double()>& clock = steady_seconds);

}  // namespace drover
