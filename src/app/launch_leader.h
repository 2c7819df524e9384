#pragma once

#include <string>

#include "app/launch_loop.h"
#include "app/launch_options.h"

namespace drover {

/// The launcher that starts mpirun: that of one machine, of a hostfile, or of node 0, which first waits on
/// `listener` (at `address`) for the others. Returns the job's exit status.
int lead_job(const LaunchOptions& options, int processes, FileDescriptor listener,
             const std::string& address);

}  // namespace drover
