#include "train/non_finite_watch.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/error.h"

namespace drover {

void NonFiniteWatch::on_step_end(TrainerView& view, const StepReport& step) {
    if (!step.non_finite || policy_ == OnNonFinite::go_on) return;
    const std::string what =
        fmt::format("Step {}: {} is not a finite number.", view.state.global_step, *step.non_finite);
    if (policy_ == OnNonFinite::stop)
        throw Error(
            what,
            "Lower --learning_rate or --max_grad_norm, look at the data, or use --on_nan skip to leave such "
            "steps out.");
    fmt::print(stderr, "{} The step was skipped.\n", what);
}

}  // namespace drover
