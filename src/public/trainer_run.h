#pragma once

#include <memory>
#include <optional>

#include "public/parts.h"
#include "public/trainer_processes.h"
#include "run/training_run.h"

namespace drover::v1 {

/// A TrainingRun made from the objects given to a Trainer. With several processes, all create theirs at the
/// same time and call the same functions in the same order.
class TrainerRun {
  public:
    explicit TrainerRun(const TrainerParts& parts);
    ~TrainerRun();
    TrainerRun(const TrainerRun&) = delete;
    TrainerRun& operator=(const TrainerRun&) = delete;

    /// Returns the last metrics. From now on the model has the run's weights.
    Json train();
    Json evaluate();
    void save_model(const std::string& folder);

    const TrainerState& state() const { return run_.loop().state(); }
    bool is_first() const { return started_.processes.is_first(); }

  private:
    void prepare();

    std::shared_ptr<const CausalLM::Parts> model_;
    StartedRun started_;
    std::optional<GpusOfProcesses> gpus_;
    TrainingRun run_;
    bool is_prepared_ = false;
    std::shared_ptr<TrainedWeights> trained_;  ///< null until training begins
};

}  // namespace drover::v1
