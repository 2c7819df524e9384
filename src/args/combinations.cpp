#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "args/adapter_arguments.h"
#include "args/dataset_list.h"
#include "args/parse_arguments.h"
#include "args/pipeline_arguments.h"
#include "args/sft_settings.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

/// At most one of the booleans may be set.
template <std::size_t count>
void at_most_one(const Arguments& arguments, const std::array<const char*, count>& names,
                 std::string_view why) {
    std::string first;
    for (const char* name : names) {
        if (!arguments.flag(name)) continue;
        if (!first.empty())
            throw UsageError(fmt::format("--{} and --{} exclude each other: {}.", first, name, why),
                             "Keep one of them.");
        first = name;
    }
}

void check_steps(const Arguments& arguments) {
    struct Interval {
        const char *strategy, *steps;
    };
    for (const Interval& interval :
         {Interval{"logging_strategy", "logging_steps"}, Interval{"eval_strategy", "eval_steps"},
          Interval{"save_strategy", "save_steps"}}) {
        if (arguments.text(interval.strategy) != "steps") continue;
        const double steps = arguments.number(interval.steps);
        if (steps == 0)
            throw UsageError(fmt::format("--{} is steps, but --{} is 0.", interval.strategy, interval.steps),
                             fmt::format("Give a number above 0, or --{} no.", interval.strategy));
        if (steps > 1 && steps != std::floor(steps))
            throw UsageError(fmt::format("--{} is {}, which is neither a whole number nor a share below 1.",
                                         interval.steps, steps),
                             "Use a whole number of updates, or a share of all updates below 1.");
    }
}

void check_best_model(const Arguments& arguments) {
    const std::string& save = arguments.text("save_strategy");
    const std::string& eval = arguments.text("eval_strategy");
    if (save == "best" && eval == "no")
        throw UsageError("--save_strategy is best, but nothing is evaluated during training.",
                         "Give --eval_strategy steps or epoch.");
    if (arguments.has("early_stopping_patience")) {
        if (eval == "no")
            throw UsageError("--early_stopping_patience needs evaluations during training.",
                             "Give --eval_strategy steps or epoch.");
        if (!arguments.has("metric_for_best_model"))
            throw UsageError("--early_stopping_patience has no metric to watch.",
                             "Give --metric_for_best_model, for example loss, or --load_best_model_at_end.");
    } else if (arguments.given("early_stopping_threshold")) {
        throw UsageError("--early_stopping_threshold is given, but nothing stops early.",
                         "Give --early_stopping_patience too.");
    }
    if (arguments.flag("eval_on_start") && arguments.flag("do_train") && !arguments.flag("do_eval"))
        throw UsageError("--eval_on_start has nothing to evaluate.", "Add --do_eval.");
    if (!arguments.flag("load_best_model_at_end") || save == "best") return;
    if (eval != save)
        throw UsageError(
            fmt::format("--load_best_model_at_end needs a checkpoint at each evaluation, but --eval_strategy "
                        "is {} and --save_strategy is {}.",
                        eval, save),
            "Give both the same value, or --save_strategy best.");
    if (eval != "steps") return;
    const double save_steps = arguments.number("save_steps"), eval_steps = arguments.number("eval_steps");
    if ((save_steps < 1) != (eval_steps < 1))
        throw UsageError(
            fmt::format("--load_best_model_at_end needs --save_steps to be a multiple of --eval_steps, which "
                        "a share and a number cannot guarantee: they are {} and {}.",
                        save_steps, eval_steps),
            "Give both as numbers or both as shares.");
    constexpr double millionth = 1e6;  // shares are compared in millionths, as transformers does
    const double unit = save_steps < 1 ? millionth : 1;
    if (std::fmod(std::round(save_steps * unit), std::round(eval_steps * unit)) != 0)
        throw UsageError(
            fmt::format(
                "--load_best_model_at_end needs --save_steps to be a multiple of --eval_steps, but they are "
                "{} and {}.",
                save_steps, eval_steps),
            "Change one of them.");
}

void check_samples(const Arguments& arguments) {
    for (const char* name : {"eval_prompts_max_new_tokens", "eval_prompts_temperature", "eval_prompts_top_k",
                             "eval_prompts_top_p"})
        if (arguments.given(name) && !arguments.has("eval_prompts"))
            throw UsageError(fmt::format("--{} is given, but there are no prompts.", name),
                             "Add --eval_prompts.");
    if (arguments.has("eval_prompts") && !arguments.flag("do_eval"))
        throw UsageError("--eval_prompts are continued after evaluations, but nothing is evaluated.",
                         "Add --do_eval or --eval_strategy steps.");
    if (arguments.number("eval_prompts_top_p") == 0)
        throw UsageError("--eval_prompts_top_p is 0, so that no token could be chosen.",
                         "Use a number above 0.");
}

void check_schedule(const Arguments& arguments) {
    const std::string& type = arguments.text("lr_scheduler_type");
    if (type == "reduce_lr_on_plateau" && arguments.text("eval_strategy") == "no")
        throw UsageError("--lr_scheduler_type reduce_lr_on_plateau needs evaluations during training.",
                         "Give --eval_strategy steps or epoch.");
}

void check_sources(const Arguments& arguments) {
    const bool training_data = arguments.has("dataset_name") || arguments.has("train_file");
    // `drover sft` trains without being told to.
    if (arguments.table().command() == "sft" && arguments.flag("do_train") && !training_data)
        throw UsageError("There is no data to train on.", "Give --dataset_name or --train_file.");
    const bool works = arguments.flag("do_train") || arguments.flag("do_eval");
    if (works && !training_data && !arguments.has("validation_file"))
        throw UsageError(fmt::format("--{} is given, but there is no data.",
                                     arguments.flag("do_train") ? "do_train" : "do_eval"),
                         "Give --dataset_name, --train_file or --validation_file.");
    if (arguments.flag("do_train") && !training_data)
        throw UsageError("--do_train is given, but there is no training data.",
                         "Give --dataset_name or --train_file.");
    if (arguments.has("config_overrides")) {
        if (arguments.has("config_name") || arguments.has("model_name_or_path"))
            throw UsageError("--config_overrides changes the default config, but another one is named.",
                             "Change the values in its config.json instead.");
        key_values(arguments.text("config_overrides"), "--config_overrides");
    }
    if (arguments.has("optim_args")) key_values(arguments.text("optim_args"), "--optim_args");
    if (works && !arguments.has("config_name") && !arguments.has("model_name_or_path") &&
        !arguments.has("model_type"))
        throw UsageError("No model is named.", "Give --config_name, --model_name_or_path or --model_type.");
    if (!is_sft(arguments) && arguments.has("pad_token") && arguments.text("packing") != "none")
        throw UsageError("--pad_token is given, but packed blocks have no padding.", "Add --packing none.");
}

void check_model(const Arguments& arguments) {
    for (const char* name : {"num_layer", "hidden_size"}) {
        if (arguments.integer(name) == 0)
            throw UsageError(fmt::format("--{} is 0.", name), "Use a number above 0, or -1: the config's.");
        if (arguments.integer(name) > 0 && arguments.flag("use_peft"))
            throw UsageError(
                fmt::format("--{} makes another model, which adapters are not saved with.", name),
                "Leave it out: adapters belong to the model of --model_name_or_path as it is.");
    }
    if (arguments.has("recompute_blocks") && arguments.text("recompute") == "none")
        throw UsageError(fmt::format("--recompute_blocks is {}, but nothing is recomputed.",
                                     arguments.integer("recompute_blocks")),
                         "Add --recompute full, or leave it out.");
}

void check_streaming(const Arguments& arguments) {
    if (!arguments.flag("streaming")) return;
    if (arguments.flag("do_train") && arguments.integer("max_steps") <= 0)
        throw UsageError(
            fmt::format("--streaming does not know how long an epoch is, so --max_steps must be a positive "
                        "number, but it is {}.",
                        arguments.integer("max_steps")),
            "Give --max_steps.");
    if (chosen_packing(arguments) == "none" && !is_sft(arguments))
        throw UsageError("--streaming does not know how long the longest row of --packing none is.",
                         "Pack the rows into blocks, or leave out --streaming.");
    if (arguments.text("train_sampling_strategy") == "group_by_length")
        throw UsageError("--streaming reads rows in order and cannot group them by length.",
                         "Keep one of the two.");
}

void check_datasets(const Arguments& arguments) {
    const std::size_t datasets = named_datasets(arguments).size();
    const bool weighted = !dataset_weights(arguments, datasets).empty();
    if (weighted && arguments.text("train_sampling_strategy") == "group_by_length")
        throw UsageError("--dataset_weights mixes rows by weight and cannot group them by length.",
                         "Keep one of the two.");
    if (datasets > 1 && !weighted && arguments.flag("streaming") && arguments.flag("do_train"))
        throw UsageError(
            fmt::format("--streaming does not know how large the {} datasets of --dataset_name are.",
                        datasets),
            "Give their shares with --dataset_weights, or leave out --streaming.");
}

void check_parallel(const Arguments& arguments) {
    const std::int64_t model_axis = arguments.integer("spmd_2d_sharding");
    const auto words = arguments.words("fsdp");
    if (model_axis > 0 && !words.empty())
        throw UsageError("--spmd_2d_sharding and --fsdp both say how to shard the model.",
                         "Keep one of them.");
    if (model_axis > 0 && arguments.flag("spmd_fsdp_sharding"))
        throw UsageError("--spmd_2d_sharding and --spmd_fsdp_sharding both say how to shard the model.",
                         "Keep one of them.");
    const std::int64_t tensor_parallel = arguments.integer("tensor_parallel_size");
    if (model_axis > 0 && tensor_parallel != model_axis)
        throw UsageError(
            fmt::format("--spmd_2d_sharding {} and --tensor_parallel_size {} give one axis two sizes.",
                        model_axis, tensor_parallel),
            "Keep one of them.");
    const std::int64_t copies = arguments.integer("kv_replicator");
    if (tensor_parallel > 1 && tensor_parallel % copies != 0)
        throw UsageError(fmt::format("--kv_replicator {} does not divide --tensor_parallel_size {}.", copies,
                                     tensor_parallel),
                         "Use a divisor.");
    pipeline_arguments(arguments);
}

/// A run writes files and folders with fixed names.
void check_output(const Arguments& arguments) {
    const std::filesystem::path folder = arguments.text("output_dir");
    if (folder.empty()) throw UsageError("--output_dir is empty.", "Name a folder.");
    if (std::filesystem::absolute(folder).lexically_normal() == "/")
        throw UsageError("--output_dir is /, the root of the file system.",
                         "Name a folder that is used only by this run.");
}

void check_resume(const Arguments& arguments) {
    if (!arguments.given("loading_step")) return;
    const std::string& step = arguments.text("loading_step");
    const bool number =
        !step.empty() && step.size() < 19 && step.find_first_not_of("0123456789") == std::string::npos;
    if (!number && step != "-1" && step != "latest_if_exists")
        throw UsageError(fmt::format("--loading_step is \"{}\", which names no checkpoint.", step),
                         "Use the number of a step, latest_if_exists, or -1 to load none.");
    if (arguments.has("resume_from_checkpoint"))
        throw UsageError("--loading_step and --resume_from_checkpoint both name a checkpoint.",
                         "Keep one of them.");
}

void check_loading(const Arguments& arguments) {
    if (arguments.integer("dataloader_num_workers") == 0 && arguments.has("dataloader_prefetch_factor"))
        throw UsageError("--dataloader_prefetch_factor is given, but --dataloader_num_workers is 0.",
                         "Leave it out; batches are made ahead anyway.");
}

}  // namespace

void check_combinations(const Arguments& arguments) {
    at_most_one(arguments, std::array{"bf16", "fp16"}, "a run has one format for its products");
    at_most_one(arguments, std::array{"bf16_full_eval", "fp16_full_eval"},
                "an evaluation has one number format");
    at_most_one(arguments, std::array{"gmm", "gmm_stack", "static"}, "experts are computed in one way");
    check_steps(arguments);
    check_best_model(arguments);
    check_samples(arguments);
    check_schedule(arguments);
    check_sources(arguments);
    check_sft(arguments);
    check_model(arguments);
    check_adapters(arguments);
    check_streaming(arguments);
    check_datasets(arguments);
    check_parallel(arguments);
    check_loading(arguments);
    check_output(arguments);
    check_resume(arguments);
}

}  // namespace drover
