#pragma once

#include "train/loop/trainer_callback.h"

namespace drover {

/// What is done about a step whose loss or gradient norm is not a finite number (--on_nan).
enum class OnNonFinite : std::uint8_t {
    stop,  ///< an Error that names the first bad tensor
    skip,  ///< a line on standard error; the engine leaves the step out (TrainEngineOptions::skip_non_finite)
    go_on,
};

/// Looks at every step. To be added before whoever prints: it may end the run.
class NonFiniteWatch final : public TrainerCallback {
  public:
    explicit NonFiniteWatch(OnNonFinite policy) : policy_(policy) {}

    void on_step_end(TrainerView& view, const StepReport& step) override;

  private:
    OnNonFinite policy_;
};

}  // namespace drover
