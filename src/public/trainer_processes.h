#pragma once

#include "drover/trainer.h"
#include "run/program_processes.h"
#include "run/settings/run_settings.h"

/// How a Trainer's run starts in the processes of a program.
namespace drover::v1 {

struct StartedRun {
    RunSettings settings;
    const Processes& processes;
};

/// Checks the arguments of all processes and connects the processes. Collective.
StartedRun start_run(const TrainerParts& parts);

/// Only one run at a time may use the GPUs of several processes, because their progress is watched for a
/// single run. Error if another run uses them.
class GpusOfProcesses {
  public:
    GpusOfProcesses();
    ~GpusOfProcesses();
    GpusOfProcesses(const GpusOfProcesses&) = delete;
    GpusOfProcesses& operator=(const GpusOfProcesses&) = delete;
};

}  // namespace drover::v1
