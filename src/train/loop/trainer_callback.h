#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "train/engine/training_model.h"
#include "train/state/step_plan.h"
#include "train/state/trainer_state.h"

namespace drover {

/// A callback's view of a run, with the switches it may set.
struct TrainerView {
    const TrainerSettings& settings;
    const StepPlan& plan;  ///< all zero when nothing is trained
    const TrainerState& state;
    const ParameterCounts& parameters;
    TrainerControl& control;
};

/// One step as the loop reports it: what the model's update did, and what the loop counted and timed.
struct StepReport {
    UpdateResult update{};
    std::int64_t epoch = 0;          ///< from 0, as the loop counts
    std::int64_t step_in_epoch = 0;  ///< from 0
    double learning_rate = 0;
    double seconds = 0;        ///< from the first micro-batch to the end of the update
    std::int64_t tokens = 0;   ///< over all replicas
    std::int64_t samples = 0;  ///< over all replicas
    std::int64_t id_sum = 0;   ///< of this rank's token ids: a checksum of its data
};

/// Is notified of the events of a run. Callbacks are called in the order in which they were added.
class TrainerCallback {
  public:
    virtual ~TrainerCallback() = default;

    virtual void on_train_begin(TrainerView&) {}
    virtual void on_epoch_begin(TrainerView&) {}
    virtual void on_step_begin(TrainerView&) {}
    virtual void on_step_end(TrainerView&, const StepReport&) {}
    virtual void on_epoch_end(TrainerView&) {}
    virtual void on_evaluate_begin(TrainerView&, std::int64_t /*samples*/) {}
    virtual void on_evaluation_step(TrainerView&, std::int64_t /*done*/, std::int64_t /*batches*/) {}
    /// After the metrics were logged.
    virtual void on_evaluate(TrainerView&, const Json& /*metrics*/) {}
    /// `record` as in log_history, but without "step".
    virtual void on_log(TrainerView&, const Json& /*record*/) {}
    /// The checkpoint is complete, possibly some steps after it was begun.
    virtual void on_save(TrainerView&, const std::filesystem::path& /*folder*/) {}
    /// The checkpoint could not be written; the run continues, since an earlier one exists.
    virtual void on_save_failed(TrainerView&, const std::filesystem::path& /*folder*/,
                                const std::string& /*why*/) {}
    /// Checkpoints beyond the limit could not be removed; the run continues.
    virtual void on_rotation_failed(TrainerView&, const std::string& /*why*/) {}
    virtual void on_train_end(TrainerView&) {}

    /// Name and contents for stateful_callbacks in trainer_state.json.
    virtual std::optional<std::pair<std::string, Json>> exported_state() const { return std::nullopt; }
    /// Restores what exported_state() returned, when a run is resumed.
    virtual void import_state(const Json& /*states*/) {}
};

}  // namespace drover
