#include "train/signal_watch.h"

#include <unistd.h>

#include <array>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::array watched = {SIGTERM, SIGINT, SIGUSR1};

// All that a handler may touch.
volatile std::sig_atomic_t end_asked_by = 0;
volatile std::sig_atomic_t save_asked = 0;

extern "C" void note_signal(int number) {
    if (number == SIGUSR1) {
        save_asked = 1;
    } else if (end_asked_by == 0) {
        end_asked_by = number;
    } else {
        constexpr char message[] = "\ndrover: A second signal: stopped at once, without saving.\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
        _exit(128 + number);
    }
}

}  // namespace

void SignalWatch::on_train_begin(TrainerView&) {
    if (installed_) return;
    end_asked_by = 0;
    save_asked = 0;
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < watched.size(); ++i)
        require(sigaction(watched[i], &action, &before_[i]) == 0, "a signal that cannot be handled");
    installed_ = true;
}

void SignalWatch::on_step_end(TrainerView& view, const StepReport&) {
    const int end = agree_ ? agree_(end_asked_by) : end_asked_by;
    const int save = agree_ ? agree_(save_asked) : save_asked;
    save_asked = 0;
    if (save != 0 || end != 0) view.control.should_save = true;
    if (end == 0) return;
    ended_by_ = end;
    view.control.interrupted = true;
    view.control.should_training_stop = true;
}

int SignalWatch::release() {
    if (!installed_) return 0;
    for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &before_[i], nullptr);
    installed_ = false;
    return ended_by_ == 0 ? static_cast<int>(end_asked_by) : 0;
}

const char* signal_name(int number) {
    return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "a signal";
}

}  // namespace drover
