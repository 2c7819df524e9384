#pragma once

#include <string>
#include <vector>

#include "train/loop/trainer_callback.h"

namespace drover {

/// Sums up a training run for its last lines; works with logging off.
class RunSummary final : public TrainerCallback {
  public:
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// Median of the steps' times, the first one (which warms up) left out when there are others; 0 without
    /// steps.
    double median_step_seconds() const;
    /// Parameters, steps, speed; a line each, ending with a newline. Empty when nothing was trained.
    std::string text() const;

  private:
    std::vector<double> seconds_;
    std::int64_t samples_ = 0;
    std::int64_t tokens_ = 0;
    ParameterCounts parameters_;
};

/// 1,234,567.
std::string with_thousands(std::int64_t value);

}  // namespace drover
