#pragma once

#include <functional>

#include "train/callbacks/signal_thread.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// Lets signals end a run cleanly: on SIGTERM, SIGINT, SIGHUP or SIGPIPE (the reader of the log is gone) the
/// step is finished and saved, and the run ends; a second SIGTERM or SIGINT ends the program immediately.
/// SIGUSR1 saves and continues.
///
/// Signals are handled from the beginning of training until this is destroyed or release() is called.
class SignalWatch final : public TrainerCallback {
  public:
    /// Returns the maximum over the ranks' numbers, so that all ranks decide alike; called twice per step.
    using Agree = std::function<int(int)>;

    /// `signals` must outlive this object. Without `saves` nothing is saved: SIGUSR1 has no effect.
    explicit SignalWatch(SignalThread& signals, Agree agree = {}, bool saves = true)
        : signals_(signals), agree_(std::move(agree)), saves_(saves) {}
    ~SignalWatch() override { release(); }

    void on_train_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// The signal that ended training; 0: none did.
    int ended_by() const { return ended_by_; }
    /// Signals act again as they would without this class. Returns a signal that came too late to end
    /// training, or 0.
    int release();

  private:
    SignalThread& signals_;
    Agree agree_;
    bool saves_;
    bool watching_ = false;
    int ended_by_ = 0;
};

/// Example: "SIGTERM".
const char* signal_name(int number);

}  // namespace drover
