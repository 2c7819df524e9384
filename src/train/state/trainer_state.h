#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace drover {

struct TrainerSettings;
struct TrainerState;

/// What the loop was asked to do next.
struct TrainerControl {
    bool should_training_stop = false;
    bool should_epoch_stop = false;
    bool should_save = false;
    bool should_evaluate = false;
    bool should_log = false;
    bool interrupted = false;  ///< ends the run after this step, once it is saved if that is requested

    /// Sets the switches that are due after an update or at the end of an epoch, as Hugging Face's
    /// DefaultFlowCallback does.
    void after_step(const TrainerSettings& settings, const TrainerState& state);
    void after_epoch(const TrainerSettings& settings, const TrainerState& state);

    /// In the form trainer_state.json keeps it, among the states of callbacks.
    Json exported() const;
};

/// A run's progress and everything it has logged: the contents of trainer_state.json.
struct TrainerState {
    /// Numbers of steps are Json numbers, because Hugging Face writes some of them as floats ("1.0").
    Json logging_steps = 500;
    Json eval_steps = 500;
    Json save_steps = 500;

    std::optional<double> epoch;  ///< absent before the first step: written as 0
    std::int64_t global_step = 0;
    std::int64_t max_steps = 0;
    std::int64_t num_train_epochs = 0;
    std::int64_t train_batch_size = 0;
    std::int64_t num_input_tokens_seen = 0;
    double total_flos = 0;
    Json log_history = Json::array();  ///< records in the order they were logged, each ending with "step"

    std::optional<double> best_metric;
    std::optional<std::int64_t> best_global_step;
    std::optional<std::string> best_model_checkpoint;

    bool is_local_process_zero = true;
    bool is_world_process_zero = true;
    Json stateful_callbacks = Json::object();  ///< by class name

    /// The state of a run that has not started: shares become numbers of steps.
    static TrainerState begin(const TrainerSettings& settings, std::int64_t max_steps, std::int64_t epochs);

    /// Of a run of another program that has made so many steps.
    static TrainerState of_other_program(std::int64_t step);
    /// Takes the numbers of steps that are 0 here, as in a checkpoint that was made of another program's, from
    /// the state of a new run.
    void take_unknown_steps(const TrainerState& fresh);

    Json epoch_json() const { return epoch ? Json(*epoch) : Json(0); }
    /// Whether `step` is a multiple of one of the numbers of steps above.
    static bool is_multiple(std::int64_t step, const Json& steps);

    /// The file's text, byte for byte as Hugging Face writes it.
    std::string text() const;
    /// Error (naming `where`) if the text is not such a file.
    static TrainerState parse(std::string_view text, std::string_view where);
};

}  // namespace drover
