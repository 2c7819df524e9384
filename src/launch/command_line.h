#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace drover {

/// A machine of the job and how many processes it gets.
struct LaunchHost {
    std::string name;
    int processes;

    bool operator==(const LaunchHost&) const = default;
};

/// The machines of a hostfile of mpirun; 0 processes where it does not say how many slots there are. A line
/// that names a machine again adds its slots.
std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file);

/// Everything that the command line of mpirun depends on.
struct MpirunPlan {
    int major_version = 4;             ///< of Open MPI
    std::filesystem::path drover;      ///< this program, at the same place on every machine
    std::vector<std::string> program;  ///< what every process runs
    int processes = 1;                 ///< of this machine, or of every one in the hostfile; 0: its slots
    std::filesystem::path hostfile{};
    int hostfile_machines = 0;
    std::vector<LaunchHost> nodes{};  ///< instead: machines where a launcher waits, node 0 first
    std::string network{};            ///< that connects them, as 10.0.0.0/24; empty: mpirun looks for one
    /// All processes are on this machine: none of them listens where others could connect.
    bool one_machine = false;
    bool connections_chosen = false;  ///< by the user, who has set OMPI_MCA_btl
    std::string preloaded{};          ///< the library in LD_PRELOAD that mpirun alone needs; empty: none
    bool oversubscribe = false;
    bool as_root = false;
    std::filesystem::path log_folder{};    ///< where every process's output gets a file; empty: none
    bool files_alone = false;              ///< and is not shown
    std::vector<std::string> variables{};  ///< of the environment, handed on by name
    std::vector<std::string> more{};       ///< words of the user's for mpirun
};

/// The words of the command line, the first "mpirun". Error when mpirun could not be told the place of this
/// program.
std::vector<std::string> mpirun_words(const MpirunPlan& plan);

/// Names of the variables that processes on other machines need as well: settings of this program, OpenMP,
/// NCCL, CUDA and Hugging Face.
std::vector<std::string> variables_to_pass(
    const std::map<std::string, std::string, std::less<>>& environment);

}  // namespace drover
