#include "train/state/step_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
    return value / by + (value % by != 0 ? 1 : 0);
}

std::int64_t whole_steps(double steps) {
    if (!(steps < 9e18))
        throw UsageError("The run has more steps than can be counted.", "Use fewer epochs, or --max_steps.");
    return static_cast<std::int64_t>(std::ceil(steps));
}

std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result))
        throw UsageError("The run has more samples than can be counted.",
                         "Use a smaller batch, or smaller --gradient_accumulation_steps or --max_steps.");
    return result;
}

}  // namespace

std::int64_t StepPlan::window(std::int64_t update, std::int64_t accumulation) const {
    return std::min(accumulation, batches_per_epoch - update * accumulation);
}

StepPlan make_step_plan(const TrainerSettings& settings, std::int64_t batches_per_epoch,
                        std::int64_t examples) {
    StepPlan plan;
    plan.streamed = batches_per_epoch == 0;
    if (plan.streamed && settings.max_steps <= 0)
        throw UsageError("The length of an epoch is not known, so the number of steps is not known either.",
                         "Give --max_steps.");
    plan.batches_per_epoch =
        plan.streamed ? product(settings.max_steps, settings.gradient_accumulation_steps) : batches_per_epoch;
    plan.updates_per_epoch = divide_up(plan.batches_per_epoch, settings.gradient_accumulation_steps);
    plan.total_batch_size =
        product(product(settings.per_device_train_batch_size, settings.gradient_accumulation_steps),
                settings.replicas);
    plan.examples = plan.streamed ? product(plan.total_batch_size, settings.max_steps) : examples;
    if (settings.max_steps > 0) {
        plan.max_steps = settings.max_steps;
        plan.epochs = plan.streamed ? std::numeric_limits<std::int64_t>::max()
                                    : divide_up(plan.max_steps, plan.updates_per_epoch);
        plan.trained_samples =
            static_cast<double>(plan.max_steps) * static_cast<double>(plan.total_batch_size);
    } else {
        plan.max_steps = whole_steps(settings.num_train_epochs * static_cast<double>(plan.updates_per_epoch));
        plan.epochs = whole_steps(settings.num_train_epochs);
        plan.trained_samples = static_cast<double>(examples) * settings.num_train_epochs;
    }
    return plan;
}

std::int64_t warmup_steps_of(const TrainerSettings& settings, std::int64_t max_steps) {
    if (settings.warmup_steps >= 1) return static_cast<std::int64_t>(settings.warmup_steps);
    const double share = settings.warmup_steps > 0 ? settings.warmup_steps : settings.warmup_ratio;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * share));
}

}  // namespace drover
