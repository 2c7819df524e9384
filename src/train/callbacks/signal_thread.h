#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace drover {

/// Takes SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGPIPE in a thread of its own, as long as it lives; the last
/// two only where the program was not started with them ignored (nohup). No other thread ever runs a handler:
/// matrix products of oneDNN keep other things than a stack where the stack pointer points, and a signal's
/// frame would be written over them.
///
/// Make it before the process has other threads: those that are made later inherit that they take no such
/// signal. One at a time.
class SignalThread {
  public:
    SignalThread();
    ~SignalThread();
    SignalThread(const SignalThread&) = delete;
    SignalThread& operator=(const SignalThread&) = delete;

    /// From now on signals are noted. Before, and after disarm(), they do what they would do without this.
    void arm();
    /// Returns end_asked() as of then.
    int disarm();

    /// Something that is done, in the thread of this class, before a signal ends the program at once; for as
    /// long as it lives. One at a time.
    class LastAct {
      public:
        LastAct(SignalThread& signals, std::function<void()> act) : signals_(signals) {
            signals_.set_last_act(std::move(act));
        }
        ~LastAct() { signals_.set_last_act({}); }
        LastAct(const LastAct&) = delete;
        LastAct& operator=(const LastAct&) = delete;

      private:
        SignalThread& signals_;
    };

    /// The first signal since arm() that asks for the end, or 0: any but SIGUSR1. A second SIGTERM or SIGINT
    /// ends the program at once, with exit code 128 + its number.
    int end_asked() const { return end_asked_; }
    /// A SIGPIPE that a write of the calling thread has caused is that thread's alone: this takes it. Call it
    /// from the thread that writes logs, before end_asked().
    void take_own();
    /// Whether SIGUSR1 came since it was asked last.
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
