#include "train/callbacks/signal_thread.h"

#include <unistd.h>

#include <ctime>

#include "core/error.h"

namespace drover {
namespace {

/// Under nohup, for example.
bool is_ignored(int number) {
    struct sigaction action {};
    return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalThread::SignalThread() {
    sigemptyset(&watched_);
    sigemptyset(&pipe_);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&watched_, number);
    if (!is_ignored(SIGHUP)) sigaddset(&watched_, SIGHUP);
    if (!is_ignored(SIGPIPE)) {
        sigaddset(&watched_, SIGPIPE);
        sigaddset(&pipe_, SIGPIPE);
    }
    require(pthread_sigmask(SIG_BLOCK, &watched_, &before_) == 0, "signals that cannot be blocked");
    thread_ = std::thread([this] { watch(); });
}

SignalThread::~SignalThread() {
    done_ = true;
    thread_.join();
    take_own();  // or it would end the program before it says why it ends
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int SignalThread::disarm() {
    const std::lock_guard lock(mutex_);
    armed_ = false;
    return end_asked_;
}

void SignalThread::arm() {
    const std::lock_guard lock(mutex_);
    end_asked_ = 0;
    insisted_ = false;
    save_asked_ = false;
    armed_ = true;
}

void SignalThread::set_last_act(std::function<void()> act) {
    const std::lock_guard lock(mutex_);
    last_act_ = std::move(act);
}

void SignalThread::watch() {
    constexpr timespec a_moment{.tv_sec = 0, .tv_nsec = 100'000'000};
    while (!done_) {
        const int number = sigtimedwait(&watched_, nullptr, &a_moment);
        if (number > 0) take(number);
    }
}

void SignalThread::take_own() {
    if (sigismember(&pipe_, SIGPIPE) == 0) return;
    constexpr timespec no_time{};
    const int number = sigtimedwait(&pipe_, nullptr, &no_time);
    const std::lock_guard lock(mutex_);
    if (number == SIGPIPE && armed_ && end_asked_ == 0) end_asked_ = number;
}

void SignalThread::take(int number) {
    const std::lock_guard lock(mutex_);
    if (!armed_) {
        // As if this class did not exist: the default action, or whatever the program was started with.
        struct sigaction action {};
        sigaction(number, nullptr, &action);
        if (action.sa_handler == SIG_DFL && last_act_) last_act_();
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, number);
        raise(number);
        pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
        pthread_sigmask(SIG_BLOCK, &only, nullptr);
        return;
    }
    if (number == SIGUSR1) {
        save_asked_ = true;
        return;
    }
    // A closing terminal or pipe may send its signal more than once, and together with another one. Only a
    // person or a scheduler insists.
    const bool insists = number == SIGTERM || number == SIGINT;
    if (insists && insisted_) {
        constexpr char message[] = "\ndrover: A second signal: stopped immediately, without saving.\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
        if (last_act_) last_act_();
        _exit(128 + number);
    }
    if (insists) insisted_ = true;
    if (end_asked_ == 0) end_asked_ = number;
}

}  // namespace drover
