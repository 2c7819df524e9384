#pragma once

#include <functional>
#include <optional>
#include <string>

namespace drover {

/// What a launcher (mpirun, srun) told this process about the others.
struct LaunchEnvironment {
    int processes = 1;
    int rank = 0;
    std::string told_by{};  ///< the variable that gave the number of processes; empty: nobody did

    bool has_others() const { return processes > 1; }
};

/// An environment variable's value; nothing when it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// Open MPI's and PMI's variables, then Slurm's where a job step (srun) started the process: a batch script
/// has SLURM_NTASKS too, but is alone. Error when a number is not one, or the rank lies outside.
LaunchEnvironment read_launch_environment(const ReadVariable& read);
/// The same from the environment of this process.
LaunchEnvironment read_launch_environment();

}  // namespace drover
