#pragma once

#include "core/json_text.h"
#include "support/golden.h"
#include "train/state/trainer_settings.h"

/// Runs of the real Trainer: tests/golden/trainer_log.json.
namespace drover::test {

inline const Json& trainer_log() {
    static const Json file = read_json_file(test::golden_path("trainer_log.json"));
    return file;
}

inline IntervalStrategy strategy(const Json& settings, const char* key, IntervalStrategy otherwise) {
    const std::string name = settings.value(key, std::string());
    if (name == "no") return IntervalStrategy::no;
    if (name == "steps") return IntervalStrategy::steps;
    if (name == "epoch") return IntervalStrategy::epoch;
    if (name == "best") return IntervalStrategy::best;
    return otherwise;
}

inline std::optional<double> steps(const Json& settings, const char* key) {
    if (!settings.contains(key) || settings.at(key).is_null()) return std::nullopt;
    return settings.at(key).get<double>();
}

/// The arguments that the oracle gave to the real Trainer.
inline TrainerSettings settings_of(const Json& json, const std::filesystem::path& output_dir) {
    TrainerSettings settings;
    settings.output_dir = output_dir;
    settings.num_train_epochs = json.value("num_train_epochs", 3.0);
    settings.max_steps = json.value("max_steps", std::int64_t{-1});
    settings.per_device_train_batch_size = json.at("per_device_train_batch_size");
    settings.per_device_eval_batch_size = json.at("per_device_eval_batch_size");
    settings.gradient_accumulation_steps = json.value("gradient_accumulation_steps", std::int64_t{1});
    settings.learning_rate = json.at("learning_rate");
    settings.lr_scheduler_type = json.value("lr_scheduler_type", std::string("linear"));
    settings.lr_scheduler_kwargs = json.value("lr_scheduler_kwargs", Json(nullptr));
    settings.warmup_steps = json.value("warmup_steps", 0.0);
    settings.logging_strategy = strategy(json, "logging_strategy", IntervalStrategy::steps);
    settings.logging_steps = steps(json, "logging_steps");
    settings.logging_first_step = json.value("logging_first_step", false);
    settings.eval_strategy = strategy(json, "eval_strategy", IntervalStrategy::no);
    settings.eval_steps = steps(json, "eval_steps");
    settings.eval_delay = json.value("eval_delay", 0.0);
    settings.eval_on_start = json.value("eval_on_start", false);
    settings.save_strategy = strategy(json, "save_strategy", IntervalStrategy::steps);
    settings.save_steps = steps(json, "save_steps");
    settings.save_total_limit = json.value("save_total_limit", std::int64_t{0});
    settings.load_best_model_at_end = json.value("load_best_model_at_end", false);
    settings.metric_for_best_model = json.value("metric_for_best_model", std::string());
    settings.dataloader_drop_last = json.value("dataloader_drop_last", false);
    settings.prediction_loss_only = json.value("prediction_loss_only", false);
    if (json.contains("include_num_input_tokens_seen"))
        settings.include_num_input_tokens_seen = CountTokens::all;
    if (json.contains("early_stopping")) {
        settings.early_stopping_patience = json.at("early_stopping")[0].get<std::int64_t>();
        settings.early_stopping_threshold = json.at("early_stopping")[1];
    }
    settings.finish();
    return settings;
}

}  // namespace drover::test
