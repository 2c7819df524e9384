#include "train/state/trainer_state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/python_json.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// How the Trainer stores a number of steps that is a float on the command line: a share becomes a number of
/// steps; numbers above 1 become integers only with the strategy that uses them.
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

/// Reads the values of a trainer_state.json that another program may have written. A value of the wrong type
/// or out of range is an Error.
class StateReader {
  public:
    StateReader(const Json& json, std::string_view where) : json_(json), where_(where) {
        if (!json.is_object()) refuse("it is not an object");
    }

    const Json& at(const char* key) const {
        if (!json_.contains(key)) refuse(fmt::format("it has no {}", key));
        return json_.at(key);
    }
    /// Absent and null are equivalent.
    bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

    double number(const char* key) const {
        if (!at(key).is_number()) refuse_value(key, "a number");
        return at(key).get<double>();
    }
    /// Python may have written it as a float.
    std::int64_t count(const char* key) const { return count_in(at(key), key); }
    /// The largest integer means a stream, whose number of epochs is unknown.
    std::int64_t epochs(const char* key) const {
        constexpr auto unknown = std::numeric_limits<std::int64_t>::max();
        return at(key) == Json(unknown) ? unknown : count(key);
    }
    /// A number of steps is kept as written. The Trainer turns a negative setting into a negative number, and
    /// then nothing is due.
    const Json& steps(const char* key) const {
        if (!at(key).is_number() || !std::isfinite(number(key))) refuse_value(key, "a number of steps");
        return at(key);
    }
    std::string text(const char* key) const {
        if (!at(key).is_string()) refuse_value(key, "a text");
        return at(key).get<std::string>();
    }
    const Json& object(const char* key) const {
        if (!at(key).is_object()) refuse_value(key, "an object");
        return at(key);
    }
    /// Objects, each with a step number; those of evaluations have numeric values.
    const Json& records(const char* key) const {
        if (!at(key).is_array()) refuse_value(key, "a list");
        for (const Json& record : at(key)) {
            if (!record.is_object() || !record.contains("step")) refuse_value(key, "a list of records");
            count_in(record.at("step"), "the step of a record");
            if (!record.contains("eval_loss")) continue;
            if (!record.contains("epoch")) refuse("an evaluation has no epoch");
            for (const char* name : {"epoch", "eval_loss", "eval_accuracy", "eval_mean_token_accuracy"})
                if (record.contains(name) && !record.at(name).is_number())
                    refuse(fmt::format("the {} of an evaluation is not a number", name));
        }
        return at(key);
    }

    [[noreturn]] void refuse(std::string_view reason) const {
        throw Error(fmt::format("{} is not the state of a training run: {}.", where_, reason),
                    "Resume from another checkpoint.");
    }

  private:
    static constexpr double most = 1e15;  // whole numbers up to here are exact

    std::int64_t count_in(const Json& value, std::string_view name) const {
        const double number = value.is_number() ? value.get<double>() : -1;
        if (!(number >= 0 && number <= most) || number != std::floor(number))
            refuse(fmt::format("{} is not a count", name));
        return value.get<std::int64_t>();
    }
    [[noreturn]] void refuse_value(const char* key, std::string_view kind) const {
        refuse(fmt::format("its {} is not {}", key, kind));
    }

    const Json& json_;
    std::string_view where_;
};

}  // namespace

void TrainerControl::after_step(const TrainerSettings& settings, const TrainerState& state) {
    const std::int64_t step = state.global_step;
    if (step == 1 && settings.logging_first_step) should_log = true;
    if (settings.logging_strategy == IntervalStrategy::steps &&
        TrainerState::is_multiple(step, state.logging_steps))
        should_log = true;

    const bool last = step >= state.max_steps;
    if (last) should_training_stop = true;
    if (settings.eval_strategy == IntervalStrategy::steps &&
        settings.eval_delay <= static_cast<double>(step) &&
        (last || TrainerState::is_multiple(step, state.eval_steps)))
        should_evaluate = true;
    if (settings.save_strategy == IntervalStrategy::steps &&
        ((last && settings.saves_last_step) || TrainerState::is_multiple(step, state.save_steps)))
        should_save = true;
}

void TrainerControl::after_epoch(const TrainerSettings& settings, const TrainerState& state) {
    if (settings.logging_strategy == IntervalStrategy::epoch) should_log = true;
    if (settings.eval_strategy == IntervalStrategy::epoch && settings.eval_delay <= state.epoch.value_or(0))
        should_evaluate = true;
    if (settings.save_strategy == IntervalStrategy::epoch) should_save = true;
}

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

TrainerState TrainerState::of_other_program(std::int64_t step) {
    TrainerState state;
    state.global_step = state.max_steps = step;
    // Unknown, so that the run that continues uses its own.
    state.logging_steps = state.eval_steps = state.save_steps = 0;
    return state;
}

void TrainerState::take_unknown_steps(const TrainerState& fresh) {
    if (logging_steps == 0) logging_steps = fresh.logging_steps;
    if (eval_steps == 0) eval_steps = fresh.eval_steps;
    if (save_steps == 0) save_steps = fresh.save_steps;
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
    const StateReader reader(json, where);
    TrainerState state;
    state.logging_steps = reader.steps("logging_steps");
    if (reader.has("eval_steps")) state.eval_steps = reader.steps("eval_steps");
    state.save_steps = reader.steps("save_steps");
    if (!reader.at("epoch").is_number_integer() && reader.has("epoch")) state.epoch = reader.number("epoch");
    state.global_step = reader.count("global_step");
    state.max_steps = reader.count("max_steps");
    state.num_train_epochs = reader.epochs("num_train_epochs");
    if (reader.has("train_batch_size")) state.train_batch_size = reader.count("train_batch_size");
    if (reader.has("num_input_tokens_seen"))
        state.num_input_tokens_seen = reader.count("num_input_tokens_seen");
    state.total_flos = reader.number("total_flos");
    state.log_history = reader.records("log_history");
    if (reader.has("best_metric")) state.best_metric = reader.number("best_metric");
    if (reader.has("best_global_step")) state.best_global_step = reader.count("best_global_step");
    if (reader.has("best_model_checkpoint"))
        state.best_model_checkpoint = reader.text("best_model_checkpoint");
    if (reader.has("stateful_callbacks")) state.stateful_callbacks = reader.object("stateful_callbacks");
    return state;
}

}  // namespace drover
