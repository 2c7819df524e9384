#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace drover {

class Command;

/// The flags of `drover launch` as typed; empty: not given. Their names are torchrun's.
struct LaunchFlags {
    std::string nproc_per_node, nnodes, node_rank, master_addr, master_port;
    std::string rdzv_endpoint, rdzv_id, rdzv_conf, max_restarts, shutdown_timeout, redirects;
    std::string hostfile, log, log_dir, mpirun_args;
    std::optional<std::string> secret_file;  ///< an empty one is an error, not a job without a secret
    bool standalone = false, exec = false, module = false;
    std::vector<std::string> explained;  ///< lines about flags that have no effect here
    std::vector<std::string> words;      ///< the program to start, and its arguments
};

/// Adds the flags to a command. They end at the first word that is not a flag: the program to start.
void add_launch_flags(const Command& command, LaunchFlags& flags);

/// The number of processes on a node.
struct ProcessCount {
    enum class Kind { number, gpu, cpu, automatic, hostfile_slots } kind = Kind::number;
    int number = 1;
};

/// The settings from flags and environment.
struct LaunchOptions {
    ProcessCount processes{};
    int nodes = 1;
    int node_rank = 0;             ///< any_node: in order of arrival
    std::string master_address{};  ///< as given: a name or an address
    int master_port = 29500;
    std::string job_id = "none";
    std::string secret{};  ///< from the environment; empty: from the file, or none
    std::filesystem::path secret_file{};
    std::chrono::seconds join_timeout{600};
    int max_restarts = 0;
    std::optional<std::chrono::seconds> shutdown_timeout{};  ///< absent: unlimited
    std::filesystem::path hostfile{}, log{}, log_folder{};
    bool files_only = false;
    std::vector<std::string> mpirun_arguments{};
    bool own_command = true;             ///< the program is a drover command
    std::vector<std::string> program{};  ///< the command or the file, and its arguments
    std::vector<std::string> remarks{};  ///< lines to show to the user
};

using LaunchEnvironmentVariables = std::map<std::string, std::string, std::less<>>;

/// UsageError names the flag or variable that is wrong.
LaunchOptions read_launch_options(const LaunchFlags& flags, const LaunchEnvironmentVariables& environment);

}  // namespace drover
