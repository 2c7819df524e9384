#include "train/callbacks/non_finite_watch.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/console.h"
#include "train/state/agreed_error.h"

namespace drover {

void NonFiniteWatch::on_step_end(TrainerView& view, const StepReport& step) {
    if (!step.update.non_finite || policy_ == OnNonFinite::proceed) return;
    const std::string what =
        fmt::format("Step {}: {} is not a finite number.", view.state.global_step, *step.update.non_finite);
    if (policy_ == OnNonFinite::stop)
        throw AgreedError(
            what,
            "Lower --learning_rate or --max_grad_norm, look at the data, or use --on_nan skip to leave such "
            "steps out.");
    if (view.state.is_world_process_zero) print_log(stderr, "{} The step was skipped.\n", what);
}

}  // namespace drover
