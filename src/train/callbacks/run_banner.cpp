#include "train/callbacks/run_banner.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/console.h"
#include "core/number_text.h"
#include "train/callbacks/run_summary.h"
#include "train/state/trainer_settings.h"

namespace drover {

std::string training_banner(const TrainerView& view) {
    const StepPlan& plan = view.plan;
    return fmt::format(
        "***** Running training *****\n"
        "  Num examples = {}\n"
        "  Num Epochs = {}\n"
        "  Num update steps per epoch = {}\n"
        "  Instantaneous batch size per device = {}\n"
        "  Total train batch size (w. parallel, distributed & accumulation) = {}\n"
        "  Gradient Accumulation steps = {}\n"
        "  Total optimization steps = {}\n"
        "  Number of trainable parameters = {}\n",
        with_thousands(plan.examples), with_thousands(plan.epochs), with_thousands(plan.updates_per_epoch),
        with_thousands(view.settings.per_device_train_batch_size), with_thousands(plan.total_batch_size),
        view.settings.gradient_accumulation_steps, with_thousands(plan.max_steps),
        with_thousands(view.parameters.trained.value_or(view.parameters.total)));
}

std::string evaluation_banner(const TrainerView& view, std::int64_t samples) {
    return fmt::format("\n***** Running Evaluation *****\n  Num examples{}\n  Batch size = {}\n",
                       samples > 0 ? fmt::format(" = {}", samples) : ": Unknown",
                       view.settings.per_device_eval_batch_size);
}

void RunBanner::on_train_begin(TrainerView& view) {
    if (!view.state.is_world_process_zero) return;
    write_log(stderr, training_banner(view));
}

void RunBanner::on_evaluate_begin(TrainerView& view, std::int64_t samples) {
    if (!view.state.is_world_process_zero) return;
    write_log(stderr, evaluation_banner(view, samples));
}

}  // namespace drover
