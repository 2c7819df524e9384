#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace drover {

/// The signal that tells a launch_process to send SIGTERM to its program. mpirun forwards this one to every
/// process of a job, on every machine; on SIGTERM itself it would kill them after a second.
constexpr int end_signal_of_jobs = 12;  // SIGUSR2

struct ProcessSettings {
    std::string preloaded{};       ///< the library in LD_PRELOAD meant only for mpirun; empty: none
    std::filesystem::path logs{};  ///< rank.N/stdout and rank.N/stderr are created in it; empty: none
    bool files_only = false;       ///< mpirun gets no output
};

/// One process of a job, between mpirun and the program: gives the program torchrun's variables, its share of
/// threads and the user's LD_PRELOAD, forwards signals to it, and ends it when mpirun's daemon dies. Returns
/// its exit status, or ends this process by the signal that ended the program.
int run_launch_process(const std::vector<std::string>& words, const ProcessSettings& settings);

}  // namespace drover
