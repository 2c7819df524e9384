#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/stopwatch.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/loop/trainer_callback.h"
#include "train/loop/training_data.h"
#include "train/state/learning_rate.h"
#include "train/state/trainer_settings.h"

namespace drover {

struct TrainerOptions {
    /// Reads a stopwatch; tests supply their own times.
    std::function<double(const Stopwatch&)> seconds = [](const Stopwatch& watch) { return watch.seconds(); };
    /// How long it took to prepare the model. As in Hugging Face, reported by evaluations outside training
    /// unless the model was trained before.
    std::optional<double> model_preparation_seconds{};
    /// Called on every rank at the same time before files in output_dir are overwritten or removed; may throw
    /// an AgreedError, which ends the run.
    std::function<void()> before_writing = [] {};
};

/// The loop of Hugging Face's Trainer 5: same order of work, counting, records and state.
class Trainer {
  public:
    /// `settings` are finished (TrainerSettings::finish). All references and pointers must outlive the
    /// trainer; `training` or `evaluation` may be null when there is nothing to train on or to evaluate.
    Trainer(TrainerSettings settings, TrainingModel& model, TrainingData* training, TrainingData* evaluation,
            TrainerOptions options = {});

    /// Callbacks are called in the order in which they were added; they must outlive the trainer.
    void add_callback(TrainerCallback& callback) { callbacks_.push_back(&callback); }

    /// Trains to the end of the plan or until a callback stops it; returns the metrics that were logged last.
    /// With `resumed`, a state saved by an earlier run, continues from there; the model must be in that
    /// state. With that run's `loop` as well, counts and records are those of a run that was never stopped;
    /// without it, they are as in Hugging Face after a resume. A run that a callback interrupts
    /// (TrainerControl::interrupted) ends without its last record.
    Json train(const TrainerState* resumed = nullptr, const LoopState* loop = nullptr);
    /// Takes over the state of a run that has ended: evaluations are then of the model it trained.
    void adopt(const TrainerState& ended);
    /// Evaluates, logs and returns the metrics.
    Json evaluate();

    /// The numbers of steps of a training run.
    StepPlan plan() const;
    const TrainerState& state() const { return state_; }
    const TrainerSettings& settings() const { return settings_; }
    bool interrupted() const { return control_.interrupted; }
    /// Why the last checkpoint could not be written; empty if it could.
    const std::string& save_failure() const { return save_failure_; }
    /// Writes trainer_state.json into output_dir.
    void save_state() const;

  private:
    /// Work done in a stretch of time; absent fields are not reported.
    struct WorkDone {
        std::optional<double> samples{};
        std::optional<double> steps{};
        std::optional<double> tokens{};
    };

    void begin_state(const TrainerState* resumed, const LoopState* loop);
    BatchPosition first_batch(const LoopState* loop) const;
    void run_epoch(std::int64_t epoch, std::int64_t first_update);
    StepReport run_step(std::int64_t epoch, std::int64_t update);
    std::vector<Batch> next_window(std::int64_t epoch, std::int64_t update, StepReport& report);
    const Batch& peek();
    bool stream_left_epoch(std::int64_t epoch);
    void add_loss(double loss);
    void log_evaluate_save(const std::optional<StepReport>& last_step);
    void log_step(const StepReport& last_step);
    /// TRL's count of the tokens so far, in records that have it.
    void add_tokens(Json& record, const char* name) const;
    void log(Json& record, bool with_token_speed);
    void store_flos();
    void evaluate_in_training();
    bool note_best(const Json& metrics);
    CheckpointPlace checkpoints() const { return {settings_.output_dir, settings_.checkpoint_prefix}; }
    void save_checkpoint();
    /// Handles the outcome of the checkpoint that is being written.
    void settle_checkpoint(bool wait);
    LoopState loop_state() const;
    Json finish_training();
    WorkDone trained_work() const;
    static void add_speed_metrics(Json& metrics, std::string_view split, double seconds,
                                  const WorkDone& work);
    void export_callback_states();

    /// Calls `event` of every callback with a view of the run and `arguments`.
    template <class... Parameters, class... Arguments>
    void tell(void (TrainerCallback::*event)(TrainerView&, Parameters...), const Arguments&... arguments) {
        TrainerView view{settings_, plan_, state_, parameters_, control_};
        for (TrainerCallback* callback : callbacks_) (callback->*event)(view, arguments...);
    }

    TrainerSettings settings_;
    TrainingModel& model_;
    TrainingData* training_;
    TrainingData* evaluation_;
    TrainerOptions options_;
    ParameterCounts parameters_;
    std::vector<TrainerCallback*> callbacks_;

    StepPlan plan_;
    TrainerState state_;
    TrainerControl control_;
    std::optional<LearningRate> learning_rate_;
    std::unique_ptr<BatchStream> batches_;
    std::optional<Batch> ahead_;  ///< of batches_, when it was read before it is used
    BatchPosition last_batch_;    ///< the last one used
    BatchPosition next_batch_;
    bool trained_ = false;

    Stopwatch training_watch_;
    std::int64_t tokens_seen_before_ = 0;  ///< num_input_tokens_seen when this run began
    std::int64_t schedule_steps_ = 0;      ///< updates that were not skipped
    std::int64_t last_logged_step_ = 0;
    float loss_sum_ = 0;        ///< since the last log; fp32, as Hugging Face's
    PredictionSums predicted_;  ///< since the last log
    double total_loss_ = 0;
    double pending_flos_ = 0;
    std::int64_t trained_tokens_ = 0;  ///< in this run, over all replicas

    std::optional<std::string>
        best_when_saved_;          ///< best_model_checkpoint of the checkpoint that is being written
    bool has_checkpoint_ = false;  ///< there is a complete one to go back to
    std::string save_failure_;
};

}  // namespace drover
