#pragma once

#include "run/process_group.h"

namespace drover {

/// How this process stands among those of its machine.
struct MachinePlace {
    int rank = 0;        ///< among the ranks of this machine
    int ranks = 1;       ///< on this machine
    int machines = 1;    ///< of the run
    bool even = true;    ///< every machine has as many ranks, which follow each other
    int processors = 1;  ///< that this rank may keep busy
    int allowed = 1;     ///< processors that it may run on, those of other ranks included
    int sharing = 1;     ///< ranks that may run on any of these, itself included

    /// Of the processors that so many threads keep busy while the other ranks wait, the share that is left
    /// when all ranks compute. Two ranks that may run on the same 4 processors: 1 with 2 threads each, ½
    /// with 4.
    double own_share(int threads) const;
};

/// What one rank knows of itself.
struct RankOnMachine {
    std::string machine;          ///< equal for ranks of one machine alone
    std::vector<int> processors;  ///< that it may run on, ascending
};

/// The place of `rank` among all ranks. Processors that several ranks of a machine may run on are divided
/// among them; at least one is left.
MachinePlace place_on_machine(const std::vector<RankOnMachine>& ranks, int rank);
/// The same of this process. Collective.
MachinePlace find_machine_place(const ProcessGroup& ranks);

}  // namespace drover
