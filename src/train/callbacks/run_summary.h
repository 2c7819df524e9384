#pragma once

#include <string>
#include <vector>

#include "train/loop/trainer_callback.h"

namespace drover {

/// Summarizes a training run for its last lines of output; works with logging off.
class RunSummary final : public TrainerCallback {
  public:
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// Median step time. The first step (warm-up) is left out when there are others; 0 without steps.
    double median_step_seconds() const;
    /// Parameters, steps, speed: one line each, ending in a newline. Empty when nothing was trained.
    std::string text() const;

  private:
    std::vector<double> seconds_;
    std::int64_t samples_ = 0;
    std::int64_t tokens_ = 0;
    ParameterCounts parameters_;
};

}  // namespace drover
