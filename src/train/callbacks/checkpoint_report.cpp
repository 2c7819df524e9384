#include "train/callbacks/checkpoint_report.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "core/console.h"
#include "core/python_text.h"

namespace drover {
namespace {

/// Arguments that change what is computed; those that trainer_state.json keeps are compared from there.
constexpr std::array compared_arguments = {
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "bf16",
    "block_size",
    "data_seed",
    "dataloader_drop_last",
    "dataset_config_name",
    "dataset_name",
    "dtype",
    "fp16",
    "gradient_accumulation_steps",
    "hf_compat",
    "keep_linebreaks",
    "label_smoothing_factor",
    "learning_rate",
    "loss_denominator",
    "lr_scheduler_kwargs",
    "lr_scheduler_type",
    "master_weights",
    "max_grad_norm",
    "max_steps",
    "max_train_samples",
    "moments_dtype",
    "neftune_noise_alpha",
    "num_train_epochs",
    "on_nan",
    "optim",
    "optim_args",
    "packing",
    "pad_token",
    "preprocessing_num_workers",
    "residual_dtype",
    "seed",
    "static",
    "stochastic_rounding",
    "streaming",
    "text_column",
    "tf32",
    "train_file",
    "train_sampling_strategy",
    "validation_split_percentage",
    "warmup_ratio",
    "warmup_steps",
    "weight_decay",
};

}  // namespace

void CheckpointReport::on_save_failed(TrainerView& view, const std::filesystem::path& folder,
                                      const std::string& why) {
    if (!view.settings.is_world_process_zero) return;
    print_log(
        stderr,
        "{} could not be written, and the run goes on without it; earlier checkpoints are as they were. {}\n",
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

std::string changed_arguments(const Json& now, const Json& saved) {
    std::string lines;
    for (const char* name : compared_arguments) {
        if (!now.contains(name) || !saved.contains(name) || now.at(name) == saved.at(name)) continue;
        lines += fmt::format("\n\t{}: {} (now) != {} (training_args.json of the checkpoint)", name,
                             python_repr(now.at(name)), python_repr(saved.at(name)));
    }
    return lines;
}

}  // namespace drover
