#pragma once

#include <signal.h>

#include <vector>

#include "launch/loop.h"

namespace drover {

/// For its lifetime, receives the signals that end a program, SIGUSR1, SIGUSR2 and SIGCHLD through a loop
/// instead of handlers. Create it before starting other programs, which get the previous mask back.
class LaunchSignals {
  public:
    explicit LaunchSignals(LaunchLoop& loop);
    ~LaunchSignals();
    LaunchSignals(const LaunchSignals&) = delete;
    LaunchSignals& operator=(const LaunchSignals&) = delete;

    /// The signals since the last call, in order; SIGCHLD only wakes the loop.
    std::vector<int> take() { return std::exchange(came_, {}); }

  private:
    LaunchLoop& loop_;
    sigset_t before_{};
    FileDescriptor descriptor_;
    std::vector<int> came_;
};

/// Whether a signal asks a program to end. SIGUSR2 is how mpirun is told to (launch/process.h).
bool asks_for_the_end(int signal_number);

}  // namespace drover
