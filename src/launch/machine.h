#pragma once

#include "launch/options.h"

namespace drover {

/// Cores that this process may use; processors that share one count once, as mpirun counts its slots.
int usable_cores();

/// How many processes a node gets; 0 where a hostfile says it. Error when GPUs are asked for and there is
/// none.
int count_processes(const ProcessCount& wanted);

/// Threads for each of so many processes on this machine.
int threads_per_process(int processes);

}  // namespace drover
