#pragma once

#include <functional>

#include "train/callbacks/signal_thread.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// Lets signals end a run in order: on SIGTERM, SIGINT, SIGHUP or SIGPIPE (the reader of the log is gone) the
/// step is finished and saved, and the run ends; a second SIGTERM or SIGINT ends the program at once. SIGUSR1
/// saves and goes on.
///
/// Signals are taken from the beginning of training until this is destroyed or release() is called.
class SignalWatch final : public TrainerCallback {
  public:
    /// Gives the largest of the ranks' numbers, so that all decide alike; called twice per step.
    using Agree = std::function<int(int)>;

    /// `signals` must outlive it.
    explicit SignalWatch(SignalThread& signals, Agree agree = {})
        : signals_(signals), agree_(std::move(agree)) {}
    ~SignalWatch() override { release(); }

    void on_train_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// The signal that ended training; 0: none did.
    int ended_by() const { return ended_by_; }
    /// Signals do again what they do without this. Returns one that came too late to end training, or 0.
    int release();

  private:
    SignalThread& signals_;
    Agree agree_;
    bool watching_ = false;
    int ended_by_ = 0;
};

/// "SIGTERM".
const char* signal_name(int number);

}  // namespace drover
