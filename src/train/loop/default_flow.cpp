#include "train/loop/default_flow.h"

namespace drover {

void flow_after_step(const TrainerSettings& settings, const TrainerState& state, TrainerControl& control) {
    const std::int64_t step = state.global_step;
    if (step == 1 && settings.logging_first_step) control.should_log = true;
    if (settings.logging_strategy == IntervalStrategy::steps &&
        TrainerState::is_multiple(step, state.logging_steps))
        control.should_log = true;

    const bool last = step >= state.max_steps;
    if (last) control.should_training_stop = true;
    if (settings.eval_strategy == IntervalStrategy::steps &&
        settings.eval_delay <= static_cast<double>(step) &&
        (last || TrainerState::is_multiple(step, state.eval_steps)))
        control.should_evaluate = true;
    if (settings.save_strategy == IntervalStrategy::steps &&
        (last || TrainerState::is_multiple(step, state.save_steps)))
        control.should_save = true;
}

void flow_after_epoch(const TrainerSettings& settings, const TrainerState& state, TrainerControl& control) {
    if (settings.logging_strategy == IntervalStrategy::epoch) control.should_log = true;
    if (settings.eval_strategy == IntervalStrategy::epoch && settings.eval_delay <= state.epoch.value_or(0))
        control.should_evaluate = true;
    if (settings.save_strategy == IntervalStrategy::epoch) control.should_save = true;
}

}  // namespace drover
