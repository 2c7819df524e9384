#pragma once

#include <string>

#include "launch/key.h"
#include "launch/options.h"

namespace drover {

/// The launcher of a node other than 0: joins the job at node 0's address, starts mpirun's daemon when node 0
/// says so, hands on signals, and ends with the job. Returns its exit status. Error when node 0 does not
/// come, does not have the key, refuses this node, or goes.
int follow_job(const LaunchOptions& options, const std::string& address, int processes, const LaunchKey& key);

}  // namespace drover
