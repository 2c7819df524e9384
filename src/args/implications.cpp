#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "args/adapter_arguments.h"
#include "args/argument_table.h"
#include "args/argument_value.h"
#include "args/optimizer_names.h"
#include "args/parse_arguments.h"
#include "args/sft_settings.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

void imply_evaluation(Arguments& arguments) {
    const std::string& strategy = arguments.text("eval_strategy");
    if (strategy != "no" && !arguments.flag("do_eval"))
        arguments.set("do_eval", true, {ArgumentSource::Kind::implied, "--eval_strategy"});
    if (strategy == "steps" && arguments.optional_number("eval_steps").value_or(0) == 0) {
        const double logging_steps = arguments.number("logging_steps");
        if (logging_steps == 0)
            throw UsageError(
                "--eval_strategy is steps, but neither --eval_steps nor --logging_steps says how many.",
                "Give --eval_steps.");
        arguments.set("eval_steps", logging_steps, {ArgumentSource::Kind::implied, "--logging_steps"});
    }
    if (arguments.has("early_stopping_patience") && !arguments.flag("load_best_model_at_end"))
        arguments.explain(
            "--early_stopping_patience: the run ends with its last weights; --load_best_model_at_end would "
            "end "
            "it with the best.");
    const bool by_metric = arguments.flag("load_best_model_at_end") ||
                           arguments.text("save_strategy") == "best" ||
                           arguments.text("lr_scheduler_type") == "reduce_lr_on_plateau";
    if (by_metric && !arguments.has("metric_for_best_model"))
        arguments.imply("metric_for_best_model", "loss", "the default metric");
    if (arguments.has("metric_for_best_model") && !arguments.has("greater_is_better"))
        arguments.imply("greater_is_better", !arguments.text("metric_for_best_model").ends_with("loss"),
                        "--metric_for_best_model");
}

/// The flags of an upload that is not asked for.
void explain_uploads(Arguments& arguments) {
    if (arguments.flag("push_to_hub")) return;
    std::vector<std::string> names;
    for (const Argument& argument : hub_arguments())
        if (argument.name != "push_to_hub" && arguments.given(argument.name))
            names.push_back(fmt::format("--{}", argument.name));
    if (!names.empty())
        arguments.explain(
            fmt::format("{}: nothing is uploaded without --push_to_hub.", fmt::join(names, ", ")));
}

void imply_recompute(Arguments& arguments) {
    for (const char* name : {"gradient_checkpointing", "spmd_grad_chkpt"}) {
        if (!arguments.flag(name)) continue;
        if (arguments.given("recompute") && arguments.text("recompute") == "none")
            throw UsageError(fmt::format("--{} and --recompute none contradict each other.", name),
                             "Keep one of them.");
        arguments.imply("recompute", "full", fmt::format("--{}", name));
    }
    if (const auto selective = arguments.optional_flag("use_selective_checkpoint"))
        arguments.imply("recompute", *selective ? "selective" : "full", "--use_selective_checkpoint");
}

/// A value that follows from run_llama_nxd.py's batch. UsageError if the user has given another one.
void imply_batch(Arguments& arguments, std::string_view name, std::int64_t value, std::string_view reason) {
    if (arguments.given(name) && arguments.integer(name) != value)
        throw UsageError(
            fmt::format("--{} is {}, but {} makes it {}.", name, arguments.integer(name), reason, value),
            "Keep one of them.");
    arguments.imply(name, value, reason);
}

/// --train_batch_size is cut into --num_microbatches; without it, the latter counts micro-batches alone.
void imply_micro_batches(Arguments& arguments) {
    const std::int64_t parts = arguments.integer("num_microbatches");
    if (const auto batch = arguments.optional_integer("train_batch_size")) {
        if (*batch % parts != 0)
            throw UsageError(
                fmt::format("--train_batch_size {} cannot be cut into {} micro-batches of one size.", *batch,
                            parts),
                "Choose --num_microbatches so that it divides the batch.");
        imply_batch(arguments, "per_device_train_batch_size", *batch / parts,
                    parts == 1 ? fmt::format("--train_batch_size {}", *batch)
                               : fmt::format("--train_batch_size {} in {} micro-batches", *batch, parts));
    }
    // A saved file of arguments has the default, which leaves the number to --gradient_accumulation_steps.
    if (parts > 1 || arguments.source("num_microbatches").kind == ArgumentSource::Kind::command_line)
        imply_batch(arguments, "gradient_accumulation_steps", parts,
                    fmt::format("--num_microbatches {}", parts));
}

/// The meaning of run_llama_nxd.py's names.
void imply_from_neuron_names(Arguments& arguments) {
    imply_micro_batches(arguments);
    if (const auto steps = arguments.optional_integer("checkpoint_freq")) {
        arguments.imply("save_strategy", *steps > 0 ? "steps" : "no", "--checkpoint_freq");
        if (*steps > 0) arguments.imply("save_steps", static_cast<double>(*steps), "--checkpoint_freq");
    }
    if (const auto folder = arguments.optional_text("checkpoint_dir"))
        arguments.imply("output_dir", *folder, "--checkpoint_dir");
    if (const auto kept = arguments.optional_integer("num_kept_checkpoint"); kept && *kept > 0)
        arguments.imply("save_total_limit", *kept, "--num_kept_checkpoint");
    if (const auto lowest = arguments.optional_number("min_lr");
        lowest && !arguments.given("lr_scheduler_type")) {
        arguments.imply("lr_scheduler_type", "cosine_with_min_lr", "--min_lr");
        arguments.imply("lr_scheduler_kwargs", Json{{"min_lr", *lowest}}, "--min_lr");
    }
    if (const auto folder = arguments.optional_text("tb_dir")) {
        // A flag takes precedence over a variable.
        const bool other_flag = arguments.given("logging_dir") &&
                                arguments.source("logging_dir").kind != ArgumentSource::Kind::environment;
        if (other_flag && arguments.text("logging_dir") != *folder)
            throw UsageError(fmt::format("--tb_dir {} and --logging_dir {} name two folders for TensorBoard.",
                                         *folder, arguments.text("logging_dir")),
                             "Keep one of them.");
        if (!other_flag) arguments.set("logging_dir", *folder, {ArgumentSource::Kind::implied, "--tb_dir"});
        arguments.imply("report_to", Json::array({"tensorboard"}), "--tb_dir");
    }
    if (const auto masters = arguments.optional_flag("use_gpu_compatible_precision")) {
        arguments.imply("master_weights", *masters, "--use_gpu_compatible_precision");
        arguments.imply("stochastic_rounding", !*masters, "--use_gpu_compatible_precision");
    }
}

/// Explains which of two conflicting settings applies, as in transformers.
void explain_what_wins(Arguments& arguments) {
    if (arguments.integer("max_steps") > 0 && arguments.given("num_train_epochs"))
        arguments.explain("--max_steps is given, so --num_train_epochs is ignored.");
    if (arguments.number("warmup_steps") > 0 && arguments.number("warmup_ratio") > 0)
        arguments.explain("--warmup_steps is given, so --warmup_ratio is ignored.");
    const std::string& schedule = arguments.text("lr_scheduler_type");
    const bool warms_up = arguments.number("warmup_steps") > 0 || arguments.number("warmup_ratio") > 0;
    if (warms_up && (schedule == "constant" || schedule == "reduce_lr_on_plateau"))
        arguments.explain(fmt::format(
            "--lr_scheduler_type {} has no warm-up, so --warmup_steps and --warmup_ratio are ignored.",
            schedule));
    struct Interval {
        const char *steps, *strategy;
    };
    for (const auto& [steps, strategy] :
         {Interval{"logging_steps", "logging_strategy"}, Interval{"eval_steps", "eval_strategy"},
          Interval{"save_steps", "save_strategy"}})
        if (arguments.given(steps) && arguments.text(strategy) != "steps")
            arguments.explain(fmt::format("--{} is used only with --{} steps, but that is {}.", steps,
                                          strategy, arguments.text(strategy)));
    if (arguments.has("model_type") && (arguments.has("config_name") || arguments.has("model_name_or_path")))
        arguments.explain("--model_type is ignored because a config or a model is named.");
}

constexpr std::array other_trackers{"azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub",
                                    "dvclive",  "flyte",   "kubeflow",   "mlflow",   "neptune",
                                    "swanlab",  "trackio", "wandb"};

void settle_trackers(Arguments& arguments) {
    Json kept = Json::array();
    std::string left_out;
    for (const std::string& word : arguments.words("report_to")) {
        if (word == "tensorboard" || word == "all") {
            if (kept.empty()) kept.push_back("tensorboard");
        } else if (std::find(other_trackers.begin(), other_trackers.end(), word) != other_trackers.end()) {
            left_out += (left_out.empty() ? "" : ", ") + word;
        } else if (word != "none") {
            throw UsageError(fmt::format("--report_to has the word \"{}\", which is not known.", word),
                             "Use tensorboard, all or none.");
        }
    }
    if (!left_out.empty())
        arguments.explain(
            fmt::format("--report_to: {} cannot be reported to; records go to the console, to "
                        "trainer_state.json and, with --report_to tensorboard, to TensorBoard.",
                        left_out));
    if (arguments.has("logging_dir") && kept.empty())
        arguments.explain("--logging_dir: nothing is written there without --report_to tensorboard.");
    if (kept.empty()) kept.push_back("none");
    if (arguments.given("report_to"))
        arguments.set("report_to", std::move(kept), arguments.source("report_to"));
}

void settle_optimizer(Arguments& arguments) {
    if (arguments.flag("adafactor")) {
        if (arguments.given("optim") && arguments.text("optim") != "adafactor")
            throw UsageError(
                fmt::format("--adafactor and --optim {} name two optimizers.", arguments.text("optim")),
                "Keep one of them.");
        arguments.imply("optim", "adafactor", "--adafactor");
    }
    OptimizerChoice choice = choose_optimizer(arguments.text("optim"));
    if (!choice.explanation.empty()) {
        arguments.explain(std::move(choice.explanation));
        arguments.set("optim", std::move(choice.name), arguments.source("optim"));
    }
}

}  // namespace

void apply_implications(Arguments& arguments) {
    imply_sft(arguments);
    if (arguments.flag("use_cpu")) {
        if (arguments.given("device") && arguments.text("device") == "cuda")
            throw UsageError("--use_cpu asks for the CPU, but the device is cuda.", "Keep one of them.");
        arguments.imply("device", "cpu", "--use_cpu");
    }
    if (arguments.flag("group_by_length"))
        arguments.imply("train_sampling_strategy", "group_by_length", "--group_by_length");
    if (const std::int64_t size = arguments.integer("spmd_2d_sharding"); size > 0)
        arguments.imply("tensor_parallel_size", size, "--spmd_2d_sharding");
    if (arguments.flag("streaming")) {
        for (const char* name : {"preprocessing_num_workers", "overwrite_cache"})
            if (arguments.table().find(name) != nullptr && arguments.given(name))
                arguments.explain(fmt::format(
                    "--{}: with --streaming nothing is tokenized ahead, so it has no effect.", name));
        if (arguments.flag("dataloader_drop_last"))
            arguments.explain(
                "--dataloader_drop_last: the last batch of a stream is used even if it is not full, as "
                "transformers does.");
        if (arguments.given("train_sampling_strategy") &&
            arguments.text("train_sampling_strategy") == "random")
            arguments.explain("--train_sampling_strategy random: with --streaming rows keep their order.");
    }
    if (arguments.given("dataset_weights") && !arguments.flag("do_train"))
        arguments.explain("--dataset_weights: evaluations do not use them, and nothing is trained.");
    imply_from_neuron_names(arguments);
    imply_adapters(arguments);
    explain_uploads(arguments);
    imply_evaluation(arguments);
    imply_recompute(arguments);
    explain_what_wins(arguments);
    explain_unused(arguments);
    settle_trackers(arguments);
    settle_optimizer(arguments);
    arguments.set("output_dir", with_home(arguments.text("output_dir")), arguments.source("output_dir"));
    if (!arguments.flag("do_train") && !arguments.flag("do_eval"))
        arguments.explain("Neither --do_train nor --do_eval is given, so there is nothing to do.");
}

}  // namespace drover
