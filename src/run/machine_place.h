#pragma once

#include "run/process_group.h"

namespace drover {

/// This process's place among the processes on its machine.
struct MachinePlace {
    int rank = 0;        ///< among the ranks of this machine
    int ranks = 1;       ///< on this machine
    int machines = 1;    ///< in the run
    bool even = true;    ///< every machine has the same number of ranks, numbered consecutively
    int processors = 1;  ///< that this rank may use
    int allowed = 1;     ///< processors it may run on, including those of other ranks
    int sharing = 1;     ///< ranks that may run on any of these, including itself

    /// The fraction left to `threads` threads when all ranks compute, of the processors they keep busy while
    /// the other ranks wait. Two ranks that may run on the same 4 processors: 1 with 2 threads each, ½ with
    /// 4.
    double own_share(int threads) const;
};

/// What one rank reports about itself.
struct RankOnMachine {
    std::string machine;          ///< the same only for ranks of one machine
    std::vector<int> processors;  ///< it may run on these; ascending
};

/// The place of `rank` among all ranks. Processors that several ranks of a machine may run on are divided
/// among them; each rank gets at least one.
MachinePlace place_on_machine(const std::vector<RankOnMachine>& ranks, int rank);
/// The same for this process. Collective.
MachinePlace find_machine_place(const ProcessGroup& ranks);

}  // namespace drover
