#pragma once

#include "drover/trainer.h"
#include "run/program_processes.h"

/// How a Trainer's run begins among the processes of a program.
namespace drover::v1 {

struct StartedRun {
    RunSettings settings;
    const Processes& processes;
};

/// Checks the arguments of all processes, and brings these together. Collective.
StartedRun start_run(const TrainerParts& parts);

/// One run at a time has the GPUs of several processes: their progress is watched for one alone. Error when
/// another has them.
class GpusOfProcesses {
  public:
    GpusOfProcesses();
    ~GpusOfProcesses();
    GpusOfProcesses(const GpusOfProcesses&) = delete;
    GpusOfProcesses& operator=(const GpusOfProcesses&) = delete;
};

}  // namespace drover::v1
