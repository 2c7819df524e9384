#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace drover {

/// Receives SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGPIPE in its own thread for its lifetime; the last two
/// only if the program was not started with them ignored (nohup). No other thread ever runs a handler:
/// oneDNN's matrix products use the stack pointer for other data, which a signal frame would overwrite.
///
/// Create it before any other thread: threads created later inherit the mask that blocks these signals. Only
/// one at a time.
class SignalThread {
  public:
    SignalThread();
    ~SignalThread();
    SignalThread(const SignalThread&) = delete;
    SignalThread& operator=(const SignalThread&) = delete;

    /// From now on signals are recorded. Before this, and after disarm(), they act as they would without this
    /// class.
    void arm();
    /// Returns end_asked() as of that moment.
    int disarm();

    /// An action that runs on this class's thread before a signal ends the program immediately, for as long
    /// as this object lives. Only one at a time.
    class FinalAction {
      public:
        FinalAction(SignalThread& signals, std::function<void()> act) : signals_(signals) {
            signals_.set_last_act(std::move(act));
        }
        ~FinalAction() { signals_.set_last_act({}); }
        FinalAction(const FinalAction&) = delete;
        FinalAction& operator=(const FinalAction&) = delete;

      private:
        SignalThread& signals_;
    };

    /// The first signal since arm() that asks the run to end (any but SIGUSR1), or 0. A second SIGTERM or
    /// SIGINT ends the program immediately, with exit code 128 + its number.
    int end_asked() const { return end_asked_; }
    /// A SIGPIPE caused by a write is sent to the writing thread only; this takes it from there. Call it from
    /// the thread that writes logs, before end_asked().
    void take_own();
    /// Whether SIGUSR1 arrived since the last call.
    bool take_save_asked() { return save_asked_.exchange(false); }

  private:
    void set_last_act(std::function<void()> act);
    void watch();
    void take(int number);

    sigset_t watched_{}, before_{};
    sigset_t pipe_{};  // SIGPIPE where it is watched
    std::mutex mutex_;
    bool armed_ = false;              // under the mutex
    bool insisted_ = false;           // under the mutex: SIGTERM or SIGINT has come
    std::function<void()> last_act_;  // under the mutex
    std::atomic<bool> done_{false}, save_asked_{false};
    std::atomic<int> end_asked_{0};
    std::thread thread_;
};

}  // namespace drover
