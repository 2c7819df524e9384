#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/json.h"
#include "train/state/trainer_settings.h"

namespace drover {

struct TrainerState;

/// What the loop has been asked to do next.
struct TrainerControl {
    bool should_training_stop = false;
    bool should_epoch_stop = false;
    bool should_save = false;
    bool should_evaluate = false;
    bool should_log = false;
    bool interrupted = false;  ///< ends the run behind this step, after it was saved if that is asked for

    /// Sets the switches that an update or the end of an epoch calls for, as Hugging Face's
    /// DefaultFlowCallback.
    void after_step(const TrainerSettings& settings, const TrainerState& state);
    void after_epoch(const TrainerSettings& settings, const TrainerState& state);

    /// As trainer_state.json keeps it, among the states of callbacks.
    Json exported() const;
};

/// How far a run is, and all it has logged: the contents of trainer_state.json.
struct TrainerState {
    /// Numbers of steps are Json numbers, for Hugging Face writes some of them as floats ("1.0").
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
    Json stateful_callbacks = Json::object();  ///< by name of the class

    /// The state of a run that has not begun: shares of steps become numbers.
    static TrainerState begin(const TrainerSettings& settings, std::int64_t max_steps, std::int64_t epochs);

    Json epoch_json() const { return epoch ? Json(*epoch) : Json(0); }
    /// Whether `step` is a multiple of one of the numbers of steps above.
    static bool is_multiple(std::int64_t step, const Json& steps);

    /// The file's text, byte for byte as Hugging Face writes it.
    std::string text() const;
    /// Error (naming `where`) when it is not such a file.
    static TrainerState parse(std::string_view text, std::string_view where);
};

}  // namespace drover
