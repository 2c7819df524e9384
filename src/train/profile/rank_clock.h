#pragma once

#include "comm/communicator.h"

namespace drover {

/// The steady clock of this process, in seconds.
double steady_seconds();

/// How far this rank's steady clock is ahead of the first rank's, in seconds. Collective; on the host.
double seconds_ahead_of_first(Communicator& everyone);

}  // namespace drover
