#include "train/state/trainer_settings.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/python_text.h"

namespace drover {
namespace {

bool ends_with_loss(const std::string& name) {
    return name.size() >= 4 && name.compare(name.size() - 4, 4, "loss") == 0;
}

/// A number of steps that is used only with the strategy `steps`.
void check_steps(std::string_view flag, IntervalStrategy strategy, const std::optional<double>& steps) {
    if (strategy != IntervalStrategy::steps || !steps) return;
    if (!(*steps > 0))
        throw UsageError(fmt::format("--{} is {}, but steps must be positive.", flag, python_float(*steps)),
                         "Give a whole number of steps, or a share of all steps below 1.");
    if (*steps > 1 && *steps != std::floor(*steps))
        throw UsageError(fmt::format("--{} is {}, which is neither a whole number nor below 1.", flag,
                                     python_float(*steps)),
                         "Give a whole number of steps, or a share of all steps below 1.");
}

const char* name_of(IntervalStrategy strategy) {
    switch (strategy) {
        case IntervalStrategy::no:
            return "no";
        case IntervalStrategy::steps:
            return "steps";
        case IntervalStrategy::epoch:
            return "epoch";
        case IntervalStrategy::best:
            return "best";
    }
    bug("an unknown strategy");
}

void check_best_model(const TrainerSettings& settings) {
    if (!settings.load_best_model_at_end || settings.save_strategy == IntervalStrategy::best) return;
    if (settings.eval_strategy != settings.save_strategy)
        throw UsageError(
            fmt::format("--load_best_model_at_end needs models saved when they are evaluated, but "
                        "--eval_strategy is {} and --save_strategy {}.",
                        name_of(settings.eval_strategy), name_of(settings.save_strategy)),
            "Give both the same value, or use --save_strategy best.");
    if (settings.eval_strategy != IntervalStrategy::steps) return;
    const double save = settings.save_steps.value_or(500), evaluate = settings.eval_steps.value_or(500);
    // Shares are compared as whole millionths; otherwise rounding would decide.
    const bool both_shares = save < 1 && evaluate < 1, mixed = (save < 1) != (evaluate < 1);
    const double scale = both_shares ? 1e6 : 1;
    if (mixed || std::fmod(save * scale, evaluate * scale) != 0)
        throw UsageError(
            fmt::format(
                "--load_best_model_at_end needs --save_steps ({}) to be a multiple of --eval_steps ({}).",
                python_float(save), python_float(evaluate)),
            "Save at every evaluation, or at every second or third.");
}

}  // namespace

void TrainerSettings::finish() {
    if (eval_strategy == IntervalStrategy::best || logging_strategy == IntervalStrategy::best)
        throw UsageError("Only --save_strategy can be best.", "Use no, steps or epoch.");
    if (gradient_accumulation_steps < 1)
        throw UsageError(fmt::format("--gradient_accumulation_steps is {}.", gradient_accumulation_steps),
                         "Use 1 or more.");
    if (max_steps == 0)
        throw UsageError("--max_steps is 0.", "Use a positive number, or leave it out to train for epochs.");
    if (max_steps < 0 && !(num_train_epochs > 0))
        throw UsageError(fmt::format("--num_train_epochs is {}.", python_float(num_train_epochs)),
                         "Use a positive number.");
    if (warmup_steps < 0 || warmup_ratio < 0 || warmup_ratio > 1)
        throw UsageError("The warm-up is negative or longer than the whole run.",
                         "Use --warmup_steps of at least 0, or --warmup_ratio between 0 and 1.");
    if (eval_strategy == IntervalStrategy::steps && eval_steps.value_or(0) == 0)
        eval_steps = logging_steps.value_or(500);
    check_steps("logging_steps", logging_strategy, logging_steps);
    check_steps("eval_steps", eval_strategy, eval_steps);
    check_steps("save_steps", save_strategy, save_steps);

    const bool plateau = lr_scheduler_type == "reduce_lr_on_plateau";
    if (plateau && eval_strategy == IntervalStrategy::no)
        throw UsageError("--lr_scheduler_type reduce_lr_on_plateau needs evaluations.",
                         "Give --eval_strategy steps or epoch.");
    if ((load_best_model_at_end || plateau) && metric_for_best_model.empty()) metric_for_best_model = "loss";
    if (!greater_is_better && !metric_for_best_model.empty())
        greater_is_better = !ends_with_loss(metric_for_best_model);
    check_best_model(*this);
    if (save_strategy == IntervalStrategy::best && metric_for_best_model.empty())
        throw UsageError("--save_strategy best does not say which metric is to be best.",
                         "Give --metric_for_best_model, for example loss.");
    if (early_stopping_patience) {
        if (metric_for_best_model.empty())
            throw UsageError("Early stopping has no metric to watch.",
                             "Give --metric_for_best_model, for example loss.");
        if (eval_strategy == IntervalStrategy::no)
            throw UsageError("Early stopping needs evaluations.", "Give --eval_strategy steps or epoch.");
    }
}

std::string TrainerSettings::best_metric_key() const {
    return metric_for_best_model.starts_with("eval_") ? metric_for_best_model
                                                      : "eval_" + metric_for_best_model;
}

}  // namespace drover
