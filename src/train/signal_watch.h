#pragma once

#include <csignal>
#include <functional>

#include "train/trainer_callback.h"

namespace drover {

/// Lets signals end a run in order: on SIGTERM or SIGINT the step is finished and saved, and the run ends; a
/// second one ends the program at once, with exit code 128 + its number. SIGUSR1 saves and goes on.
///
/// Signals are taken from the beginning of training until this is destroyed or release() is called; one
/// watch at a time.
class SignalWatch final : public TrainerCallback {
  public:
    /// Gives the largest of the ranks' numbers, so that all decide alike; called once per step.
    using Agree = std::function<int(int)>;

    explicit SignalWatch(Agree agree = {}) : agree_(std::move(agree)) {}
    ~SignalWatch() override { release(); }

    void on_train_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// The signal that ended training; 0: none did.
    int ended_by() const { return ended_by_; }
    /// Gives the signals back to whoever had them. Returns one that came too late to end training, or 0.
    int release();

  private:
    Agree agree_;
    bool installed_ = false;
    int ended_by_ = 0;
    struct sigaction before_[3] = {};
};

/// "SIGTERM".
const char* signal_name(int number);

}  // namespace drover
