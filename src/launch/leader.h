#pragma once

#include <optional>
#include <string>

#include "launch/key.h"
#include "launch/loop.h"
#include "launch/options.h"

namespace drover {

/// Where node 0 waits for the others.
struct MeetingPlace {
    FileDescriptor listener;
    std::string address;
    LaunchKey key;
};

/// The launcher that starts mpirun: that of one machine, of a hostfile, or of node 0, which first waits for
/// the others at `place`. Returns the job's exit status.
int lead_job(const LaunchOptions& options, int processes, std::optional<MeetingPlace> place);

}  // namespace drover
