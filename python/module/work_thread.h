#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "python.h"

namespace drover::python {

/// The thread on which the library computes, while the Python thread that called it waits.
///
/// A signal's handler must not run on a thread that computes: oneDNN's matrix products use the stack pointer
/// for other data, which the signal's frame would overwrite. Python's handlers run on whichever thread the
/// system chooses, so this thread, and the OpenMP threads that it starts, block all signals. The thread that
/// waits takes them, and Python's functions run on it too: Ctrl-C, callbacks, everything as if it had
/// computed itself.
///
/// One thread serves all calls, one after the other, because OpenMP, CUDA and MPI remember the thread that
/// they were first used on.
class WorkThread {
  public:
    /// Started by the first call, and there until the program ends.
    static WorkThread& only();

    enum class Signals {
        take,   ///< Python's handlers run while this waits; the exception of one stops the work
        leave,  ///< for destructors, in which no exception can be raised
    };
    /// Does `work` on the thread and throws what it throws. PythonRaised instead if a Python exception of a
    /// handler or of call_back() is set. The caller has the GIL; it is free for others meanwhile. Can be
    /// called from within call_back().
    void run(const std::function<void()>& work, Signals signals = Signals::take);

    /// For `work`: the waiting thread calls `function` with the GIL. PythonRaised if it throws, or if the
    /// work is to stop: `work` should let that pass.
    void call_back(const std::function<void()>& function);
    /// For `work`, between two steps: PythonRaised if the work is to stop.
    void check_stop();

  private:
    struct Job;
    struct Question;
    class Turn;

    WorkThread();
    void perform(Job& job, std::unique_lock<std::mutex>& lock);
    void serve();

    std::recursive_mutex turns_;  ///< held by the Python thread whose call is being served
    std::mutex mutex_;
    std::condition_variable changed_;
    Job* posted_ = nullptr;      // under mutex_
    Question* asked_ = nullptr;  // under mutex_
    std::string stop_asked_;     // under mutex_: the exception that waits to be raised; empty: none
};

}  // namespace drover::python
