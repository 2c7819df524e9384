#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Several processes started by a launcher that gives them no way to find each other: each would train alone.
struct ForeignLauncher {
    std::string variable{};  ///< the one that gave their number
    int processes = 1;
    int started_in = 1;            ///< number of processes of mpirun or srun; 1 also if there was neither
    bool one_per_machine = false;  ///< as when a platform starts containers, not one per GPU
    std::string flags{};           ///< for drover launch, to start the same number
};

/// What a launcher (mpirun, srun) told this process about the other processes.
struct LaunchEnvironment {
    int processes = 1;
    int rank = 0;
    std::string told_by{};  ///< the variable that gave the number of processes; empty: none
    std::optional<ForeignLauncher> foreign{};  ///< then `rank` is that launcher's

    bool has_others() const { return processes > 1; }
};

/// Reads an environment variable; nothing if it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// Reads Open MPI's and PMI's variables, then Slurm's if a job step (srun) started the process: a batch
/// script and the shell of salloc also have SLURM_NTASKS, but are alone. If torchrun's variables (RANK and
/// WORLD_SIZE) report more processes than these, there is a foreign launcher: `srun -n 1 torchrun` starts
/// one. Error if a value is not a number, or the rank is out of range.
LaunchEnvironment read_launch_environment(const ReadVariable& read);
/// The same from the environment of this process.
LaunchEnvironment read_launch_environment();

/// Error if a foreign launcher has started this process as one of several, with the command that works:
/// `program` is what follows `drover launch` and its flags.
void refuse_foreign_launcher(const LaunchEnvironment& launch, std::string_view program);

/// What follows `drover launch` for the running program: "--exec ./name …".
std::string own_program_words();

}  // namespace drover
