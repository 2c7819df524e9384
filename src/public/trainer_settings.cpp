#include "public/trainer_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

#include "args/argument_name.h"
#include "args/argument_table.h"
#include "args/argument_value.h"
#include "args/run_settings.h"
#include "core/error.h"
#include "model/families/family.h"
#include "public/parts.h"

namespace drover::v1 {
namespace {

std::atomic<bool> fsdp_v2_enabled = false;

const ArgumentSource from_fields{.kind = ArgumentSource::Kind::command_line};

/// By name, because training_args.json needs the names, and so that implications and conflicts are decided by
/// the same code as for the command.
Arguments named_arguments(const TrainerParts& parts) {
    const TrainingArguments& a = parts.args;
    Arguments arguments;
    const auto set = [&](std::string_view name, const Json& value) {
        arguments.set(name, value_from_json(*run_clm_table().find(name), value, fmt::format("--{}", name)),
                      from_fields);
    };
    set("do_train", true);
    set("do_eval", parts.eval_dataset.has_value());
    const CausalLM::Parts& model = *parts.model.parts();
    if (model.folder.empty())
        set("config_name", model.config_name);
    else
        set("model_name_or_path", model.folder.string());
    set("dtype", model.dtype);
    // Where the rows come from.
    const auto& files = parts.train_dataset.parts()->files;
    set("train_file", files ? files->files.front().string() : "rows of the program");
    set("packing", "none");
    set("output_dir", a.output_dir);
    set("per_device_train_batch_size", a.per_device_train_batch_size);
    set("per_device_eval_batch_size", a.per_device_eval_batch_size);
    set("gradient_accumulation_steps", a.gradient_accumulation_steps);
    // If max_steps counts, a number of epochs that the program has not set is not worth a message.
    if (a.max_steps <= 0 || a.num_train_epochs != TrainingArguments{}.num_train_epochs)
        set("num_train_epochs", a.num_train_epochs);
    set("max_steps", a.max_steps);
    set("learning_rate", a.learning_rate);
    set("lr_scheduler_type", a.lr_scheduler_type);
    set("warmup_steps", a.warmup_steps);
    set("optim", a.optim);
    set("weight_decay", a.weight_decay);
    set("max_grad_norm", a.max_grad_norm);
    set("logging_steps", a.logging_steps);
    set("save_strategy", a.save_strategy);
    set("save_steps", a.save_steps);
    set("eval_strategy", a.eval_strategy);
    set("dataloader_drop_last", a.dataloader_drop_last);
    set("seed", a.seed);
    set("disable_tqdm", a.disable_tqdm);
    set("enable_jit_checkpoint", a.enable_jit_checkpoint);
    return arguments;
}

void set_text(Arguments& arguments, const std::string& name, const std::string& text) {
    const NamedArgument named = find_written_argument(arguments.table(), name);
    if (named.negated)
        throw UsageError(fmt::format("The training arguments have \"{}\", which takes no value.", name),
                         fmt::format("Give \"{}\" the value \"no\".", named.argument->name));
    arguments.set(named.argument->name, value_from_text(*named.argument, text, "--" + name), from_fields);
}

/// A Trainer has objects and calls for some things that the command takes from its arguments.
void refuse_what_does_nothing(const Arguments& before, const Arguments& after) {
    std::vector<std::string_view> names;
    for (const ArgumentGroup& group : run_clm_table().groups())
        for (const Argument& argument : group.arguments)
            if (argument.is_for_command_only && after.given(argument.name) &&
                (!before.given(argument.name) ||
                 before.to_json().at(argument.name) != after.to_json().at(argument.name)))
                names.push_back(argument.name);
    if (names.empty()) return;
    throw UsageError(
        fmt::format("{} {} set, which a Trainer does not act on.", fmt::join(names, ", "),
                    names.size() == 1 ? "is" : "are"),
        "Take it out of the training arguments or the environment, or train with drover run_clm.");
}

}  // namespace

RunSettings settings_of(const TrainerParts& parts, int processes) {
    const Arguments fields = named_arguments(parts);
    Arguments arguments = fields;
    const FsdpTrainingArguments& fsdp = parts.args.fsdp;
    if (parts.args.report_to != TrainingArguments{}.report_to)  // or it would forbid what implies another one
        set_text(arguments, "report_to", parts.args.report_to);
    if (!fsdp.fsdp.empty()) set_text(arguments, "fsdp", fsdp.fsdp);
    if (!fsdp.fsdp_config.empty()) set_text(arguments, "fsdp_config", fsdp.fsdp_config);
    for (const auto& [name, value] : parts.args.more) set_text(arguments, name, value);
    const RunArguments run = settle_run_arguments(
        std::move(arguments), {.environment = read_environment(), .args_file = {}, .world_size = processes});
    refuse_what_does_nothing(fields, run.arguments);
    if (run.fsdp && run.fsdp->xla_fsdp_v2 && !fsdp_v2_enabled)
        throw Error("The training arguments ask for FSDP v2, which is not enabled.",
                    "Call use_fsdp_v2() before everything else.");
    RunSettings settings = run_settings(run);
    std::erase_if(settings.record.explanations, [](const std::string& line) {
        return line.starts_with("--enable_jit_checkpoint:");  // here it is not only accepted
    });
    settings.names.output_dir = "output_dir";
    settings.names.steal_lock = "steal_lock in the training arguments";
    settings.do_eval = parts.eval_dataset.has_value();
    settings.checkpoints.save_final_model = false;
    settings.checkpoints.resume = {.from = ResumeSettings::From::nowhere_unchecked};
    return settings;
}

void use_fsdp_v2() {
    fsdp_v2_enabled = true;
}

FsdpTrainingArguments fsdp_v2_training_args(const CausalLM& model) {
    const Json config = {{"transformer_layer_cls_to_wrap", {family_of(model.parts()->config).block_class}},
                         {"xla", true},
                         {"xla_fsdp_v2", true},
                         {"xla_fsdp_grad_ckpt", true}};
    return {.fsdp = "full_shard", .fsdp_config = config.dump()};
}

}  // namespace drover::v1
