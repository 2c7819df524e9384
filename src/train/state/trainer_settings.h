#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/json.h"

namespace drover {

/// When something is done (logging_strategy, eval_strategy, save_strategy).
enum class IntervalStrategy : std::uint8_t {
    no,
    steps,
    epoch,
    best,  ///< save_strategy only: whenever an evaluation is the best so far
};

/// include_num_input_tokens_seen.
enum class CountTokens : std::uint8_t { no, all, non_padding };

/// What to do about a step whose loss or gradient norm is not finite (--on_nan).
enum class OnNonFinite : std::uint8_t {
    stop,  ///< an Error naming the first bad tensor
    skip,  ///< a line on standard error; the engine leaves the step out (TrainEngineOptions::skip_non_finite)
    proceed,
};

/// What the loop needs to know: arguments of Hugging Face's Trainer under their names, and whatever else
/// counts steps, logs, evaluates, saves or ends a run. Settings of the update
/// (optimizer, clipping, precision) are given where the model is created.
struct TrainerSettings {
    std::filesystem::path output_dir = "trainer_output";  ///< empty: nothing is saved

    double num_train_epochs = 3;
    std::int64_t max_steps = -1;  ///< > 0: instead of num_train_epochs
    std::int64_t per_device_train_batch_size = 8;
    std::int64_t per_device_eval_batch_size = 8;
    std::int64_t gradient_accumulation_steps = 1;

    double learning_rate = 5e-5;
    std::string lr_scheduler_type = "linear";
    Json lr_scheduler_kwargs = nullptr;
    double warmup_steps = 0;  ///< below 1: a share of all steps
    double warmup_ratio = 0;  ///< used when warmup_steps is 0

    // Numbers of steps below 1 are shares of all steps. Absent: 500; eval_steps: as logging_steps.
    IntervalStrategy logging_strategy = IntervalStrategy::steps;
    std::optional<double> logging_steps;
    bool logging_first_step = false;
    bool logging_nan_inf_filter = true;
    IntervalStrategy eval_strategy = IntervalStrategy::no;
    std::optional<double> eval_steps;
    double eval_delay = 0;
    bool eval_on_start = false;
    IntervalStrategy save_strategy = IntervalStrategy::steps;
    std::optional<double> save_steps;
    std::int64_t save_total_limit = 0;  ///< ≤ 0: keep all
    bool saves_last_step = true;        ///< with IntervalStrategy::steps, whatever save_steps is
    std::string checkpoint_prefix = "checkpoint-";
    bool waits_for_checkpoints = false;  ///< training continues only when a checkpoint is written

    bool load_best_model_at_end = false;
    std::string metric_for_best_model;      ///< empty: none, or the loss if one is needed
    std::optional<bool> greater_is_better;  ///< absent: true unless the metric's name ends in "loss"

    std::optional<std::int64_t> early_stopping_patience;  ///< absent: no early stop
    double early_stopping_threshold = 0;

    std::uint64_t seed = 42;
    std::optional<std::uint64_t> data_seed;  ///< for the order of samples, instead of seed
    bool dataloader_drop_last = false;       ///< in training and in evaluation
    bool prediction_loss_only = false;       ///< evaluation reports no accuracy
    bool ignore_data_skip = false;           ///< a resumed epoch starts with its first batch
    bool include_tokens_per_second = false;
    CountTokens include_num_input_tokens_seen = CountTokens::no;
    /// Records have what TRL's SFTTrainer calls num_tokens (all tokens trained on so far, without padding),
    /// entropy and mean_token_accuracy (means over batches); of an evaluation, in place of eval_accuracy.
    bool sft_records = false;

    /// Ranks that see different batches. Where they share batches (ReplicaPart), the loop counts one replica.
    std::int64_t replicas = 1;
    std::int64_t replica = 0;  ///< index of this rank's replica
    bool is_local_process_zero = true;
    bool is_world_process_zero = true;

    /// Derives settings from others, as Hugging Face does. UsageError if they contradict each other.
    void finish();

    /// The metric's name as evaluations report it: with the prefix "eval_".
    std::string best_metric_key() const;
    bool greater_metric_is_better() const { return greater_is_better.value_or(false); }
};

}  // namespace drover
