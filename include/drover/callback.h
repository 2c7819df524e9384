#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "drover/export.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    /// The progress of a run, as in trainer_state.json.
    struct TrainerState {
        std::int64_t global_step = 0;  ///< updates done
        std::int64_t max_steps = 0;
        double epoch = 0;
        std::int64_t num_train_epochs = 0;
        std::vector<std::map<std::string, double>> log_history;  ///< every record, with "step"
        std::optional<double> best_metric;                       ///< of metric_for_best_model
        std::optional<std::int64_t> best_global_step;
        std::optional<std::string> best_model_checkpoint;
        bool is_world_process_zero = true;
    };

    /// What the loop does next. A callback may change any of it: set a switch to ask for something, or clear
    /// one to prevent what was due. As in transformers, records, evaluations and checkpoints can be asked for
    /// from the beginning of a step to its evaluation; an end at any time.
    struct TrainerControl {
        bool should_training_stop = false;  ///< training ends after this step
        bool should_epoch_stop = false;     ///< the next epoch begins after this step
        bool should_save = false;           ///< a checkpoint is written after this step
        bool should_evaluate = false;       ///< evaluates after this step; needs an eval_dataset
        bool should_log = false;            ///< the loss since the last record is logged after this step
    };

    /// Is told of the events of training and may direct it, as transformers' TrainerCallback does. Override
    /// what you need.
    ///
    /// The functions are called on the thread that calls train() or evaluate(), between two steps; they may
    /// use the model, but not the Trainer. An exception ends train() and reaches its caller.
    ///
    /// If several processes train together, the callbacks of all are called at the same events. What one of
    /// them asks for, all do, also if the other processes have no callbacks; a switch that one clears is
    /// cleared unless another sets it. An exception in one ends all, as any error does.
    ///
    /// ```cpp
    /// class StopWhenGood : public drover::TrainerCallback {
    ///   public:
    ///     void on_log(const drover::TrainerState& state, drover::TrainerControl& control,
    ///                 const std::map<std::string, double>& logs) override {
    ///         const auto loss = logs.find("loss");
    ///         if (loss == logs.end() || loss->second > 2.5) return;
    ///         if (state.is_world_process_zero) std::printf("good after %d steps\n", int(state.global_step));
    ///         control.should_save = control.should_training_stop = true;
    ///     }
    /// };
    /// std::vector<std::shared_ptr<drover::TrainerCallback>> callbacks;  // for TrainerParts
    /// callbacks.push_back(std::make_shared<StopWhenGood>());
    /// ```
    class DROVER_EXPORT TrainerCallback {
      public:
        virtual ~TrainerCallback();

        virtual void on_train_begin(const TrainerState& state, TrainerControl& control);
        virtual void on_epoch_begin(const TrainerState& state, TrainerControl& control);
        virtual void on_step_begin(const TrainerState& state, TrainerControl& control);
        /// After an update, when the switches that are due are set.
        virtual void on_step_end(const TrainerState& state, TrainerControl& control);
        virtual void on_epoch_end(const TrainerState& state, TrainerControl& control);
        /// After every record: "loss", "grad_norm", "learning_rate", … or those of an evaluation.
        virtual void on_log(const TrainerState& state, TrainerControl& control,
                            const std::map<std::string, double>& logs);
        /// After an evaluation, also one outside training.
        virtual void on_evaluate(const TrainerState& state, TrainerControl& control,
                                 const std::map<std::string, double>& metrics);
        /// The checkpoint in this folder is complete. It is written in the background, so this may be some
        /// steps after it was begun, and only an end can be asked for here.
        virtual void on_save(const TrainerState& state, TrainerControl& control,
                             const std::string& checkpoint);
        virtual void on_train_end(const TrainerState& state, TrainerControl& control);
    };

}  // namespace v1
}  // namespace drover
