#pragma once

#include "launch/options.h"

namespace drover {

/// Cores that this process may use; processors on the same core count once, as in mpirun's slots.
int usable_cores();

/// The number of processes for a node; 0 if a hostfile gives it. Error if GPUs are requested and there are
/// none.
int count_processes(const ProcessCount& wanted);

/// Threads for each of this many processes on this machine.
int threads_per_process(int processes);

}  // namespace drover
