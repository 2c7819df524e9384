#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace drover {

/// Takes SIGTERM, SIGINT and SIGUSR1 in a thread of its own, as long as it lives. No other thread ever runs a
/// handler: matrix products of oneDNN keep other things than a stack where the stack pointer points, and a
/// signal's frame would be written over them.
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

    /// The first SIGTERM or SIGINT since arm(), or 0. A second one ends the program at once, with exit code
    /// 128 + its number.
    int end_asked() const { return end_asked_; }
    /// Whether SIGUSR1 came since it was asked last.
    bool take_save_asked() { return save_asked_.exchange(false); }

  private:
    void set_last_act(std::function<void()> act);
    void watch();
    void take(int number);

    sigset_t watched_{}, before_{};
    std::mutex mutex_;
    bool armed_ = false;              // under the mutex
    std::function<void()> last_act_;  // under the mutex
    std::atomic<bool> done_{false}, save_asked_{false};
    std::atomic<int> end_asked_{0};
    std::thread thread_;
};

}  // namespace drover
