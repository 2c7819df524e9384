#include "train/resume_warning.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/python_text.h"

namespace drover {

std::string resume_warning(const TrainerSettings& settings, const TrainerState& state) {
    const TrainerState asked = TrainerState::begin(settings, state.max_steps, state.num_train_epochs);
    std::string lines;
    const auto compare = [&](std::string_view flag, const Json& now, const Json& saved,
                             std::string_view meaning) {
        if (now != saved)
            lines += fmt::format("  --{} is {}, but {} in the checkpoint: {}.\n", flag, python_repr(now),
                                 python_repr(saved), meaning);
    };
    constexpr std::string_view interval = "the checkpoint's goes on to count";
    compare("logging_steps", asked.logging_steps, state.logging_steps, interval);
    compare("eval_steps", asked.eval_steps, state.eval_steps, interval);
    compare("save_steps", asked.save_steps, state.save_steps, interval);
    compare("per_device_train_batch_size", settings.per_device_train_batch_size, state.train_batch_size,
            "the batches that are passed over have the new size, so the run goes on at another sample");
    if (lines.empty()) return lines;
    return "Settings differ from those of the checkpoint:\n" + lines;
}

void ResumeWarning::on_train_begin(TrainerView& view) {
    if (!view.state.is_world_process_zero) return;
    fmt::print(stderr, "{}", resume_warning(view.settings, view.state));
    std::fflush(stderr);
}

}  // namespace drover
