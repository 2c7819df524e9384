#pragma once

#include <memory>
#include <optional>

#include "public/parts.h"
#include "public/sigterm.h"
#include "public/trainer_processes.h"
#include "public/user_callbacks.h"
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

    /// Returns the last metrics, null if SIGTERM ended it. From now on the model has the run's weights.
    Json train(const TrainOptions& options);
    Json evaluate();
    void save_model(const std::string& folder);
    void add_callback(std::shared_ptr<v1::TrainerCallback> callback) { callbacks_.add(std::move(callback)); }

    const drover::TrainerState& state() const { return run_.loop().state(); }
    bool is_interrupted() const { return run_.loop().interrupted(); }
    bool is_first() const { return started_.processes.is_first(); }

  private:
    class Use;
    void prepare();

    std::shared_ptr<const CausalLM::Parts> model_;
    StartedRun started_;
    std::optional<GpusOfProcesses> gpus_;
    UserCallbacks callbacks_;
    std::optional<SigtermStop> sigterm_;  ///< absent: SIGTERM is left alone
    TrainingRun run_;
    bool is_prepared_ = false;
    bool is_in_use_ = false;                   ///< a call has not ended
    std::shared_ptr<TrainedWeights> trained_;  ///< null until training begins
};

}  // namespace drover::v1
