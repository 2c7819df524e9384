#include "train/callbacks/signal_watch.h"

namespace drover {

void SignalWatch::on_train_begin(TrainerView&) {
    if (watching_) return;
    signals_.arm();
    watching_ = true;
}

void SignalWatch::on_step_end(TrainerView& view, const StepReport&) {
    signals_.take_own();
    const auto agreed = [&](int number) { return agree_ ? agree_(number) : number; };
    const int end = agreed(signals_.end_asked());
    const bool save = agreed(signals_.take_save_asked() ? 1 : 0) != 0;
    if (saves_ && (save || end != 0)) view.control.should_save = true;
    if (end == 0) return;
    ended_by_ = end;
    view.control.interrupted = true;
    view.control.should_training_stop = true;
}

int SignalWatch::release() {
    if (!watching_) return 0;
    watching_ = false;
    signals_.take_own();
    const int asked = signals_.disarm();
    return ended_by_ == 0 ? asked : 0;
}

const char* signal_name(int number) {
    switch (number) {
        case SIGTERM:
            return "SIGTERM";
        case SIGINT:
            return "SIGINT";
        case SIGHUP:
            return "SIGHUP";
        case SIGPIPE:
            return "SIGPIPE";
        default:
            return "a signal";
    }
}

}  // namespace drover
