#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Several processes that a launcher has started which gives them no way to find each other: each would train
/// alone.
struct ForeignLauncher {
    std::string variable{};  ///< that gave their number
    int processes = 1;
    int started_in = 1;            ///< as many processes of mpirun or srun; 1 also where there was neither
    bool one_per_machine = false;  ///< as platforms start containers, not one per GPU
    std::string flags{};           ///< with which drover launch starts as many
};

/// What a launcher (mpirun, srun) told this process about the others.
struct LaunchEnvironment {
    int processes = 1;
    int rank = 0;
    std::string told_by{};  ///< the variable that gave the number of processes; empty: nobody did
    std::optional<ForeignLauncher> foreign{};  ///< then `rank` is what that launcher says

    bool has_others() const { return processes > 1; }
};

/// An environment variable's value; nothing when it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// Open MPI's and PMI's variables, then Slurm's where a job step (srun) started the process: a batch script
/// and the shell of salloc have SLURM_NTASKS too, but are alone. Where torchrun's (RANK and WORLD_SIZE) tell
/// of more processes than those, they show a foreign launcher: `srun -n 1 torchrun` starts one. Error when a
/// number is not one, or the rank lies outside.
LaunchEnvironment read_launch_environment(const ReadVariable& read);
/// The same from the environment of this process.
LaunchEnvironment read_launch_environment();

/// Error when a foreign launcher has started this process among several, with the command that works:
/// `program` is what stands behind `drover launch` and its flags.
void refuse_foreign_launcher(const LaunchEnvironment& launch, std::string_view program);

/// What stands behind `drover launch` for the running program: "--exec ./name …".
std::string own_program_words();

}  // namespace drover
