#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/tee.h"

namespace drover {

/// mpirun and its version. Error if there is none, or it is not Open MPI's.
struct Mpirun {
    std::filesystem::path file;
    int major_version;
    std::string version{};  ///< "4.1.4"
};
Mpirun find_mpirun();

/// One run of mpirun, with everything it starts.
class LaunchJob {
  public:
    using Clock = std::chrono::steady_clock;

    /// `variables` replace this program's in mpirun's environment. With a log, all of its output goes there
    /// as well.
    LaunchJob(LaunchLoop& loop, const Mpirun& mpirun, const std::vector<std::string>& words,
              const std::vector<std::string>& variables, LaunchLog* log);

    /// Its exit status once it has ended; 128 + SIGTERM if it was asked to end before its programs had
    /// started. Must be called at least every second: it also carries out the requests below.
    std::optional<int> status();

    /// Asks the processes to end: SIGTERM to every program. After `patience` they are killed.
    void ask_end(std::optional<std::chrono::seconds> patience);
    bool end_asked() const { return end_asked_.has_value(); }
    /// Kills them, and mpirun itself if it does not do so within seconds.
    void force_end();
    /// Forwards a signal to every program.
    void pass(int signal_number) const { mpirun_.signal(signal_number); }

  private:
    void enforce_end();

    LaunchChild mpirun_;
    Clock::time_point started_ = Clock::now();
    std::optional<Clock::time_point> end_asked_, end_repeated_, end_due_, end_forced_;
    std::optional<PipeReader> output_, errors_;
};

}  // namespace drover
