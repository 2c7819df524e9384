#include "work_thread.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

#include "errors.h"

namespace drover::python {
namespace {

/// All signals but those of a fault of the thread itself.
sigset_t foreign_signals() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
        sigdelset(&signals, fault);
    return signals;
}

}  // namespace

struct WorkThread::Job {
    const std::function<void()>& work;
    bool is_done = false;  // under the mutex
    std::exception_ptr problem{};
};

struct WorkThread::Question {
    const std::function<void()>& function;
    bool is_answered = false;  // under the mutex
};

/// The right to post jobs; nested calls of one thread share it.
class WorkThread::Turn {
  public:
    explicit Turn(WorkThread& thread) : turns_(thread.turns_) {
        if (turns_.try_lock()) return;
        const ReleasedGil released;
        turns_.lock();
    }
    ~Turn() { turns_.unlock(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

  private:
    std::recursive_mutex& turns_;
};

WorkThread& WorkThread::only() {
    static auto* const thread = new WorkThread;  // never destroyed: objects may still need it at the very end
    return *thread;
}

WorkThread::WorkThread() {
    const sigset_t signals = foreign_signals();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    std::thread([this] { serve(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void WorkThread::perform(Job& job, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    try {
        job.work();
    } catch (...) {
        job.problem = std::current_exception();
    }
    lock.lock();
    job.is_done = true;
    changed_.notify_all();
}

void WorkThread::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return posted_ != nullptr; });
        perform(*std::exchange(posted_, nullptr), lock);
    }
}

void WorkThread::run(const std::function<void()>& work, Signals signals) {
    const Turn turn(*this);
    Job job{work};
    KeptException kept;
    bool is_posted = false;
    for (;;) {
        Question* question = nullptr;
        {
            const ReleasedGil released;
            std::unique_lock lock(mutex_);
            if (!std::exchange(is_posted, true)) {
                stop_asked_.clear();
                posted_ = &job;
                changed_.notify_all();
            }
            // A handler only notes its signal, and wakes nobody.
            constexpr std::chrono::milliseconds until_signals_are_looked_for(50);
            changed_.wait_for(lock, until_signals_are_looked_for,
                              [&] { return job.is_done || asked_ != nullptr; });
            if (job.is_done) break;
            question = std::exchange(asked_, nullptr);
        }
        if (signals == Signals::take && PyErr_CheckSignals() != 0) kept.take();
        if (question != nullptr && !kept) {
            try {
                question->function();
            } catch (...) {
                raise_current();
                kept.take();
            }
        }
        const std::string text = kept.text();
        const std::lock_guard lock(mutex_);
        stop_asked_ = text;
        if (question != nullptr) question->is_answered = true;
        changed_.notify_all();
    }
    if (kept) {
        kept.raise();
        throw PythonRaised();
    }
    if (job.problem) std::rethrow_exception(job.problem);
}

void WorkThread::call_back(const std::function<void()>& function) {
    Question question{function};
    std::unique_lock lock(mutex_);
    asked_ = &question;
    changed_.notify_all();
    while (!question.is_answered) {
        changed_.wait(lock, [&] { return question.is_answered || posted_ != nullptr; });
        // The function itself calls the library.
        if (posted_ != nullptr) perform(*std::exchange(posted_, nullptr), lock);
    }
    if (!stop_asked_.empty()) throw PythonRaised(stop_asked_);
}

void WorkThread::check_stop() {
    const std::lock_guard lock(mutex_);
    if (!stop_asked_.empty()) throw PythonRaised(stop_asked_);
}

}  // namespace drover::python
