#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// A machine of the job and how many processes it gets.
struct LaunchHost {
    std::string name;
    int processes;

    bool operator==(const LaunchHost&) const = default;
};

/// The machines in a hostfile of mpirun; 0 processes if it gives no number of slots. A line that names a
/// machine again adds its slots.
std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file);

/// Everything that the command line of mpirun depends on.
struct MpirunPlan {
    int major_version = 4;             ///< of Open MPI
    std::filesystem::path drover;      ///< this program, at the same path on every machine
    std::vector<std::string> program;  ///< what every process runs
    int processes = 1;                 ///< on this machine, or on each one in the hostfile; 0: its slots
    std::filesystem::path hostfile{};
    int hostfile_machines = 0;
    std::vector<LaunchHost> nodes{};  ///< instead: machines where a launcher waits, node 0 first
    std::string network{};            ///< that connects them, such as 10.0.0.0/24; empty: mpirun chooses
    /// All processes are on this machine, so none of them listens where other machines could connect.
    bool one_machine = false;
    bool connections_chosen = false;  ///< the user has set OMPI_MCA_btl
    std::string preloaded{};          ///< the library in LD_PRELOAD that only mpirun needs; empty: none
    bool oversubscribe = false;
    bool as_root = false;
    std::filesystem::path log_folder{};    ///< folder for a file with each process's output; empty: none
    bool files_only = false;               ///< the output goes only there
    std::vector<std::string> variables{};  ///< of the environment, passed on by name
    std::vector<std::string> more{};       ///< the user's words for mpirun
};

/// The words of the command line, starting with "mpirun". Error if the path of this program cannot be given
/// to mpirun.
std::vector<std::string> mpirun_words(const MpirunPlan& plan);

/// Names of the variables that processes on other machines also need: settings of this program, OpenMP, NCCL,
/// CUDA and Hugging Face.
std::vector<std::string> variables_to_pass(
    const std::map<std::string, std::string, std::less<>>& environment);

/// Whether this word is followed by the name and value of an Open MPI parameter: `--mca NAME VALUE` and the
/// like.
bool is_parameter_flag(std::string_view word);

/// The values that the words give to the parameter with exactly this name.
std::vector<std::string> values_of_parameter(const std::vector<std::string>& words, std::string_view name);

}  // namespace drover
