#include "public/trainer_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <atomic>

#include "core/error.h"
#include "core/json.h"
#include "core/python_text.h"
#include "public/parts.h"

namespace drover::v1 {
namespace {

std::atomic<bool> fsdp_v2_enabled = false;

/// The arguments as words of a command line of run_clm.
std::vector<std::string> words_of(const TrainerParts& parts) {
    const TrainingArguments& a = parts.args;
    std::vector<std::string> words = {"--do_train"};
    const auto add = [&](const std::string& name, const std::string& value) {
        words.push_back("--" + name);
        words.push_back(value);
    };
    add("model_name_or_path", parts.model.parts()->folder.string());
    add("dtype", parts.model.parts()->dtype);
    add("train_file", parts.train_dataset.parts()->files.files.front().string());  // where the rows come from
    add("packing", "none");
    add("output_dir", a.output_dir);
    add("per_device_train_batch_size", std::to_string(a.per_device_train_batch_size));
    add("per_device_eval_batch_size", std::to_string(a.per_device_eval_batch_size));
    add("gradient_accumulation_steps", std::to_string(a.gradient_accumulation_steps));
    add("num_train_epochs", python_float(a.num_train_epochs));
    add("max_steps", std::to_string(a.max_steps));
    add("learning_rate", python_float(a.learning_rate));
    add("lr_scheduler_type", a.lr_scheduler_type);
    add("warmup_steps", python_float(a.warmup_steps));
    add("optim", a.optim);
    add("weight_decay", python_float(a.weight_decay));
    add("max_grad_norm", python_float(a.max_grad_norm));
    add("logging_steps", python_float(a.logging_steps));
    add("save_strategy", a.save_strategy);
    add("save_steps", python_float(a.save_steps));
    add("eval_strategy", a.eval_strategy);
    if (parts.eval_dataset) words.emplace_back("--do_eval");
    add("dataloader_drop_last", a.dataloader_drop_last ? "True" : "False");
    add("seed", std::to_string(a.seed));
    add("disable_tqdm", a.disable_tqdm ? "True" : "False");
    if (!a.fsdp.fsdp.empty()) add("fsdp", a.fsdp.fsdp);
    if (!a.fsdp.fsdp_config.empty()) add("fsdp_config", a.fsdp.fsdp_config);
    for (const auto& [name, value] : a.more) add(name, value);
    return words;
}

/// Arguments of run_clm that only the command acts on: a Trainer would take them and do nothing.
constexpr std::array of_the_command = {"resume_from_checkpoint",
                                       "loading_step",
                                       "report_to",
                                       "logging_dir",
                                       "tb_dir",
                                       "early_stopping_patience",
                                       "early_stopping_threshold",
                                       "comm_stats",
                                       "spmd_debug",
                                       "save_final_model",
                                       "overwrite_output_dir",
                                       "streaming",
                                       "dry_run",
                                       "profile_step",
                                       "profile_epoch",
                                       "profile_duration_ms",
                                       "profile_logdir",
                                       "log_format",
                                       "max_train_samples",
                                       "max_eval_samples",
                                       "block_size",
                                       "text_column",
                                       "keep_linebreaks",
                                       "validation_split_percentage",
                                       "config_name",
                                       "num_layer",
                                       "hidden_size"};

void refuse_what_does_nothing(const TrainerParts& parts, const Arguments& arguments) {
    std::vector<std::string> names;
    for (const char* name : of_the_command)
        if (arguments.given(name)) names.emplace_back(name);
    if (arguments.text("model_name_or_path") != parts.model.parts()->folder.string())
        names.emplace_back("model_name_or_path");
    if (arguments.text("train_file") != parts.train_dataset.parts()->files.files.front().string())
        names.emplace_back("train_file");
    if (names.empty()) return;
    throw UsageError(
        fmt::format("{} {} set, which a Trainer of the C++ API does not act on.", fmt::join(names, ", "),
                    names.size() == 1 ? "is" : "are"),
        "Take it out of TrainingArguments::more or the environment, or train with drover run_clm.");
}

}  // namespace

RunArguments checked_arguments(const TrainerParts& parts, int processes) {
    RunArguments run = parse_run_arguments(
        words_of(parts), {.environment = read_environment(), .args_file = {}, .world_size = processes});
    refuse_what_does_nothing(parts, run.arguments);
    if (run.fsdp && run.fsdp->xla_fsdp_v2 && !fsdp_v2_enabled)
        throw Error("The training arguments ask for FSDP v2, which is not enabled.",
                    "Call drover::use_fsdp_v2() before everything else.");
    return run;
}

void use_fsdp_v2() {
    fsdp_v2_enabled = true;
}

FsdpTrainingArguments fsdp_v2_training_args(const CausalLM& model) {
    const std::map<std::string, std::string> classes = {{"llama", "LlamaDecoderLayer"},
                                                        {"mixtral", "MixtralDecoderLayer"}};
    const auto found = classes.find(model.model_type());
    if (found == classes.end())
        throw Error(
            fmt::format("The decoder class of a model of type \"{}\" is not known.", model.model_type()),
            "Fill in FsdpTrainingArguments by hand.");
    const Json config = {{"transformer_layer_cls_to_wrap", {found->second}},
                         {"xla", true},
                         {"xla_fsdp_v2", true},
                         {"xla_fsdp_grad_ckpt", true}};
    return {.fsdp = "full_shard", .fsdp_config = config.dump()};
}

}  // namespace drover::v1
