#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace drover {

/// Which signal tells a launch_process to send SIGTERM to its program. mpirun hands this one on to every
/// process of a job, on every machine; SIGTERM itself makes it kill them after a second.
constexpr int end_signal_of_jobs = 12;  // SIGUSR2

struct ProcessSettings {
    std::string preloaded{};       ///< the library in LD_PRELOAD that was for mpirun alone; empty: none
    std::filesystem::path logs{};  ///< rank.N/stdout and rank.N/stderr are made in it; empty: none
    bool files_alone = false;      ///< and mpirun gets nothing
};

/// One process of a job, between mpirun and the program: gives the program torchrun's variables, its share of
/// threads and the LD_PRELOAD of its user, hands signals on to it, and ends it when mpirun's daemon dies.
/// Returns its exit status, or ends this process by the signal that ended it.
int run_launch_process(const std::vector<std::string>& words, const ProcessSettings& settings);

}  // namespace drover
