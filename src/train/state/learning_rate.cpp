#include "train/state/learning_rate.h"

#include <fmt/format.h>

#include "core/error.h"
#include "train/state/step_plan.h"
#include "train/state/trainer_settings.h"

namespace drover {

LearningRate::LearningRate(const TrainerSettings& settings, std::int64_t max_steps) {
    if (settings.lr_scheduler_type == "reduce_lr_on_plateau")
        plateau_.emplace(settings.learning_rate, settings.greater_metric_is_better(),
                         settings.lr_scheduler_kwargs);
    else
        schedule_.emplace(settings.lr_scheduler_type, settings.learning_rate,
                          warmup_steps_of(settings, max_steps), max_steps, settings.lr_scheduler_kwargs);
}

void LearningRate::observe(const TrainerSettings& settings, const Json& metrics) {
    if (plateau_) plateau_->observe(best_model_metric(settings, metrics));
}

double best_model_metric(const TrainerSettings& settings, const Json& metrics) {
    const std::string key = settings.best_metric_key();
    if (!metrics.contains(key)) {
        std::string known;
        for (const auto& [name, value] : metrics.items()) known += (known.empty() ? "" : ", ") + name;
        throw Error(
            fmt::format("--metric_for_best_model asks for {}, which evaluation does not report.", key),
            fmt::format("Choose one of: {}.", known));
    }
    if (!metrics.at(key).is_number())
        throw Error(fmt::format("--metric_for_best_model asks for {}, which is {} and not a number.", key,
                                metrics.at(key).dump()),
                    "Choose another metric, or another checkpoint if it comes from there.");
    return metrics.at(key).get<double>();
}

}  // namespace drover
