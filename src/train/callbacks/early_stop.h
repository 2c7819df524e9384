#pragma once

#include "train/loop/trainer_callback.h"

namespace drover {

/// Stops a run when metric_for_best_model has not improved for a number of evaluations, like Hugging Face's
/// EarlyStoppingCallback.
class EarlyStop final : public TrainerCallback {
  public:
    EarlyStop(std::int64_t patience, double threshold) : patience_(patience), threshold_(threshold) {}

    void on_evaluate(TrainerView& view, const Json& metrics) override;
    std::optional<std::pair<std::string, Json>> exported_state() const override;
    void import_state(const Json& states) override;

  private:
    std::int64_t patience_;
    double threshold_;
    std::int64_t without_improvement_ = 0;
};

}  // namespace drover
