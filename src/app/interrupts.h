#pragma once

#include <signal.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

namespace drover {

/// Ctrl-C during a conversation: it stops an answer, or ends the conversation at the prompt. A thread of its
/// own receives the signal, because a handler must not run in a thread that computes (see SignalThread).
/// Create it before any other thread: those created later inherit the mask that blocks SIGINT.
class Interrupts {
  public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;

    /// From now on SIGINT is recorded. Before, it ends the program.
    void record() { records_ = true; }
    /// Whether one was recorded since the last call.
    bool take();
    /// The next line of standard input without its end; nothing at the end of input, or after SIGINT.
    std::optional<std::string> read_line();

  private:
    void watch();

    sigset_t watched_{}, before_{};
    int event_;  // readable while a SIGINT is recorded
    std::atomic<bool> records_{false}, done_{false};
    std::string input_;  // read, but not returned yet
    std::thread thread_;
};

}  // namespace drover
