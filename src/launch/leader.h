#pragma once

#include <optional>
#include <string>

#include "launch/key.h"
#include "launch/loop.h"
#include "launch/options.h"

namespace drover {

/// Where node 0 waits for the other nodes.
struct MeetingPlace {
    FileDescriptor listener;
    std::string address;
    LaunchKey key;
};

/// The launcher that starts mpirun: on one machine, for a hostfile, or on node 0, which first waits for the
/// other nodes at `place`. Returns the job's exit status.
int lead_job(const LaunchOptions& options, int processes, std::optional<MeetingPlace> place);

}  // namespace drover
