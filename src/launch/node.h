#pragma once

#include <string>

#include "launch/key.h"
#include "launch/options.h"

namespace drover {

/// The launcher on a node other than 0: joins the job at node 0's address, starts mpirun's daemon on node 0's
/// request, forwards signals, and ends with the job. Returns its exit status. Error if node 0 does not
/// appear, does not have the key, refuses this node, or disconnects.
int follow_job(const LaunchOptions& options, const std::string& address, int processes, const LaunchKey& key);

}  // namespace drover
