#pragma once

#include <cstdint>
#include <optional>

#include "core/json.h"
#include "optim/schedule.h"

namespace drover {

struct TrainerSettings;

/// The learning rate of a run: a pure function of the number of updates done, or (reduce_lr_on_plateau) of
/// the evaluations so far.
class LearningRate {
  public:
    LearningRate(const TrainerSettings& settings, std::int64_t max_steps);

    /// The rate for the update after `updates_done`.
    double rate(std::int64_t updates_done) const {
        return plateau_ ? plateau_->rate() : schedule_->rate(updates_done);
    }
    /// Takes the latest evaluation into account.
    void observe(const TrainerSettings& settings, const Json& metrics);

  private:
    std::optional<Schedule> schedule_;
    std::optional<PlateauSchedule> plateau_;
};

/// The value of metric_for_best_model among `metrics`; Error if it is missing.
double best_model_metric(const TrainerSettings& settings, const Json& metrics);

}  // namespace drover
