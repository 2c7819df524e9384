#pragma once

#include <signal.h>

#include <vector>

#include "launch/loop.h"

namespace drover {

/// Takes the signals that end a program, SIGUSR1, SIGUSR2 and SIGCHLD out of a loop instead of by handlers,
/// as long as it lives. Made before the program starts others, which get the mask back that was there before.
class LaunchSignals {
  public:
    explicit LaunchSignals(LaunchLoop& loop);
    ~LaunchSignals();
    LaunchSignals(const LaunchSignals&) = delete;
    LaunchSignals& operator=(const LaunchSignals&) = delete;

    /// Those that came since it was asked last, in order; SIGCHLD only wakes the loop.
    std::vector<int> take() { return std::exchange(came_, {}); }

  private:
    LaunchLoop& loop_;
    sigset_t before_{};
    FileDescriptor descriptor_;
    std::vector<int> came_;
};

/// Whether a signal asks a program to end. SIGUSR2 is how mpirun is told so (launch_process.h).
bool asks_for_the_end(int signal_number);

}  // namespace drover
