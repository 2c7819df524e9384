#include "train/trainer_state.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/python_text.h"

namespace drover {
namespace {

/// What the Trainer keeps of a number of steps given on the command line, where it is a float: a share
/// becomes a number; the arguments turn numbers beyond 1 into integers only with the strategy that uses them.
Json kept_steps(const std::optional<double>& given, IntervalStrategy strategy, std::int64_t max_steps) {
    if (!given) return 500;
    if (*given < 1) return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * *given));
    if (*given > 1 && strategy == IntervalStrategy::steps) return static_cast<std::int64_t>(*given);
    return *given;
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

template <class Value>
std::optional<Value> optional_value(const Json& json, const char* key) {
    if (!json.contains(key) || json.at(key).is_null()) return std::nullopt;
    return json.at(key).get<Value>();
}

}  // namespace

Json TrainerControl::exported() const {
    return {{"args",
             {{"should_training_stop", should_training_stop},
              {"should_epoch_stop", should_epoch_stop},
              {"should_save", should_save},
              {"should_evaluate", should_evaluate},
              {"should_log", should_log}}},
            {"attributes", Json::object()}};
}

TrainerState TrainerState::begin(const TrainerSettings& settings, std::int64_t max_steps,
                                 std::int64_t epochs) {
    TrainerState state;
    state.logging_steps = kept_steps(settings.logging_steps, settings.logging_strategy, max_steps);
    state.eval_steps = kept_steps(settings.eval_steps, settings.eval_strategy, max_steps);
    state.save_steps = kept_steps(settings.save_steps, settings.save_strategy, max_steps);
    state.max_steps = max_steps;
    state.num_train_epochs = epochs;
    state.train_batch_size = settings.per_device_train_batch_size;
    state.is_local_process_zero = settings.is_local_process_zero;
    state.is_world_process_zero = settings.is_world_process_zero;
    return state;
}

bool TrainerState::is_multiple(std::int64_t step, const Json& steps) {
    const double every = steps.get<double>();
    return every > 0 && std::fmod(static_cast<double>(step), every) == 0;
}

std::string TrainerState::text() const {
    const Json json = {
        {"best_global_step", or_null(best_global_step)},
        {"best_metric", or_null(best_metric)},
        {"best_model_checkpoint", or_null(best_model_checkpoint)},
        {"epoch", epoch_json()},
        {"eval_steps", eval_steps},
        {"global_step", global_step},
        {"is_hyper_param_search", false},
        {"is_local_process_zero", is_local_process_zero},
        {"is_world_process_zero", is_world_process_zero},
        {"log_history", log_history},
        {"logging_steps", logging_steps},
        {"max_steps", max_steps},
        {"num_input_tokens_seen", num_input_tokens_seen},
        {"num_train_epochs", num_train_epochs},
        {"save_steps", save_steps},
        {"stateful_callbacks", stateful_callbacks},
        {"total_flos", total_flos},
        {"train_batch_size", train_batch_size},
        {"trial_name", nullptr},
        {"trial_params", nullptr},
    };
    return python_json(json, 2) + "\n";
}

TrainerState TrainerState::parse(std::string_view text, std::string_view where) {
    const Json json = parse_python_json(text, where);
    TrainerState state;
    try {
        state.logging_steps = json.at("logging_steps");
        state.eval_steps = json.value("eval_steps", Json(500));
        state.save_steps = json.at("save_steps");
        if (!json.at("epoch").is_number_integer()) state.epoch = optional_value<double>(json, "epoch");
        state.global_step = json.at("global_step");
        state.max_steps = json.at("max_steps");
        state.num_train_epochs = json.at("num_train_epochs");
        state.train_batch_size = optional_value<std::int64_t>(json, "train_batch_size").value_or(0);
        state.num_input_tokens_seen = json.value("num_input_tokens_seen", std::int64_t{0});
        state.total_flos = json.at("total_flos");
        state.log_history = json.at("log_history");
        state.best_metric = optional_value<double>(json, "best_metric");
        state.best_global_step = optional_value<std::int64_t>(json, "best_global_step");
        state.best_model_checkpoint = optional_value<std::string>(json, "best_model_checkpoint");
        state.stateful_callbacks = json.value("stateful_callbacks", Json::object());
    } catch (const nlohmann::json::exception& failure) {
        throw Error(fmt::format("{} is not the state of a training run: {}.", where, failure.what()),
                    "Resume from another checkpoint.");
    }
    return state;
}

}  // namespace drover
