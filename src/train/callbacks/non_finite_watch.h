#pragma once

#include "train/loop/trainer_callback.h"
#include "train/state/trainer_settings.h"

namespace drover {

/// Checks every step. Add it before callbacks that print: it may end the run.
class NonFiniteWatch final : public TrainerCallback {
  public:
    explicit NonFiniteWatch(OnNonFinite policy) : policy_(policy) {}

    void on_step_end(TrainerView& view, const StepReport& step) override;

  private:
    OnNonFinite policy_;
};

}  // namespace drover
