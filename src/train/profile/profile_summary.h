#pragma once

#include <string>

#include "train/profile/profile_data.h"

namespace drover {

/// A rank's communication and waiting, per step, in seconds.
struct ProfileWaits {
    double step = 0;         ///< a step
    double collectives = 0;  ///< in which some collective was in progress
    double exposed = 0;      ///< of it, in which the device computed nothing
    double data = 0;         ///< in which the loop waited for a batch
};

ProfileWaits waits_of(const RankProfile& profile);

/// A few tables for the log: operations and scopes by their time, and the waits. Ends in a newline.
std::string profile_summary(const RankProfile& profile);

}  // namespace drover
