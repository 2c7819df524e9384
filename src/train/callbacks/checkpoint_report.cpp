#include "train/callbacks/checkpoint_report.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/console.h"
#include "core/python_json.h"
#include "train/state/trainer_settings.h"

namespace drover {

void CheckpointReport::on_save_failed(TrainerView& view, const std::filesystem::path& folder,
                                      const std::string& why) {
    if (!view.settings.is_world_process_zero) return;
    print_log(stderr,
              "{} could not be written, and the run continues without it; earlier checkpoints are as they "
              "were. {}\n",
              folder.filename().string(), why);
}

void CheckpointReport::on_rotation_failed(TrainerView& view, const std::string& why) {
    if (!view.settings.is_world_process_zero) return;
    print_log(stderr, "A checkpoint beyond --save_total_limit stays for now. {}\n", why);
}

std::string changed_settings(const TrainerSettings& settings, const TrainerState& fresh,
                             const TrainerState& saved) {
    std::string lines;
    const auto compare = [&](std::string_view name, const Json& now, const Json& then) {
        if (now != then)
            lines += fmt::format("\n\t{}: {} (from args) != {} (from trainer_state.json)", name,
                                 python_repr(now), python_repr(then));
    };
    compare("logging_steps", fresh.logging_steps, saved.logging_steps);
    compare("eval_steps", fresh.eval_steps, saved.eval_steps);
    compare("save_steps", fresh.save_steps, saved.save_steps);
    if (saved.train_batch_size > 0)
        compare("per_device_train_batch_size", settings.per_device_train_batch_size, saved.train_batch_size);
    if (lines.empty()) return "";
    return "Warning: The following arguments do not match the ones in the `trainer_state.json` within the "
           "checkpoint directory: " +
           lines;
}

std::string changed_values(const std::vector<std::string>& names, const Json& now, const Json& saved) {
    std::string lines;
    for (const std::string& name : names) {
        if (!now.contains(name) || !saved.contains(name) || now.at(name) == saved.at(name)) continue;
        lines += fmt::format("\n\t{}: {} (now) != {} (training_args.json of the checkpoint)", name,
                             python_repr(now.at(name)), python_repr(saved.at(name)));
    }
    return lines;
}

}  // namespace drover
