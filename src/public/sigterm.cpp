#include "public/sigterm.h"

#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "core/error.h"

namespace drover::v1 {
namespace {

std::atomic<bool> sigterm_is_caught = false;
std::atomic<bool> sigterm_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

sigset_t only_sigterm() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    return set;
}

bool take_pending_sigterm() {
    const sigset_t set = only_sigterm();
    constexpr timespec no_time{};
    return sigtimedwait(&set, nullptr, &no_time) == SIGTERM;
}

}  // namespace

CaughtSigterm::CaughtSigterm() : was_blocked_(static_cast<std::size_t>(omp_get_max_threads())) {
    if (sigterm_is_caught.exchange(true))
        throw Error("Another Trainer of this program is training with enable_jit_checkpoint.",
                    "Let it end first, or leave enable_jit_checkpoint off for one of them.");
    sigterm_came = false;
    struct sigaction action {};
    action.sa_handler = [](int) { sigterm_came = true; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, &before_);
    const sigset_t set = only_sigterm();
#pragma omp parallel
    {
        sigset_t previous;
        pthread_sigmask(SIG_BLOCK, &set, &previous);
        was_blocked_[static_cast<std::size_t>(omp_get_thread_num())] =
            static_cast<char>(sigismember(&previous, SIGTERM));
    }
}

CaughtSigterm::~CaughtSigterm() {
    if (taken_) take_pending_sigterm();  // the same request, repeated
    sigaction(SIGTERM, &before_, nullptr);
    const sigset_t set = only_sigterm();
#pragma omp parallel num_threads(static_cast <int>(was_blocked_.size()))
    if (was_blocked_[static_cast<std::size_t>(omp_get_thread_num())] == 0)
        pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    const bool is_left = sigterm_came.exchange(false) && !taken_;
    sigterm_is_caught = false;
    if (is_left) kill(getpid(), SIGTERM);
}

bool CaughtSigterm::take() {
    if (take_pending_sigterm()) sigterm_came = true;
    if (sigterm_came) taken_ = true;
    return taken_;
}

void SigtermStop::on_step_end(TrainerView& view, const StepReport&) {
    if (!caught_ || ranks_.largest(caught_->take() ? 1 : 0) == 0) return;
    view.control.should_save = true;
    view.control.interrupted = true;
    view.control.should_training_stop = true;
}

}  // namespace drover::v1
