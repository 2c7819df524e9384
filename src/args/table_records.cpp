#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> evaluation_arguments() {
    using namespace table;
    constexpr std::string_view by_chunks =
        "Evaluation sums losses and hits batch by batch and keeps no logits, so there is nothing to tune.";
    static constexpr std::array rows{
        choice("eval_strategy", "no|steps|epoch", "no", "When to evaluate during training."),
        number("eval_steps", "",
               "Updates between evaluations; below 1 a share of all updates; unset: --logging_steps.")
            .at_least(0),
        number("eval_delay", "0", "Updates or epochs before the first evaluation.").at_least(0),
        integer("per_device_eval_batch_size", "8", "Sequences per device in evaluation.")
            .at_least(1)
            .at_most(most_of_a_batch),
        flag("eval_on_start", "no", "Evaluate once before training."),
        flag("prediction_loss_only", "no", "Leave accuracy out of the evaluation."),
        flag("load_best_model_at_end", "no", "End with the best checkpoint instead of the last."),
        text("metric_for_best_model", "",
             "What makes a checkpoint the best; unset: loss, where it is needed."),
        maybe("greater_is_better",
              "Whether a higher metric is better; unset: yes unless its name ends in loss."),
        integer("early_stopping_patience", "",
                "Stop when the metric for the best model has not improved for this many evaluations.")
            .at_least(1),
        number("early_stopping_threshold", "0.0",
               "With --early_stopping_patience: by how much it must improve to count.")
            .at_least(0),
        path(
            "eval_prompts", "",
            "File of prompts that the model continues after each evaluation, greedily unless a temperature "
            "is given: a text per line, or .jsonl or .json of texts or messages. The texts go to the log, to "
            "eval_samples.jsonl in --output_dir and to TensorBoard."),
        integer("eval_prompts_max_new_tokens", "64", "With --eval_prompts: tokens of a text at most.")
            .at_least(1)
            .at_most(1e6),
        number("eval_prompts_temperature", "0", "With --eval_prompts: 0 takes the likeliest token.")
            .at_least(0),
        integer("eval_prompts_top_k", "0", "With --eval_prompts: choose among the k likeliest; 0: all.")
            .at_least(0),
        number("eval_prompts_top_p", "1",
               "With --eval_prompts: choose among the likeliest that together have this probability.")
            .at_least(0)
            .at_most(1),
        integer("eval_accumulation_steps", "", "Batches whose logits are kept on the device.")
            .at_least(1)
            .explained(by_chunks),
        flag("batch_eval_metrics", "no", "Compute metrics batch by batch.").explained(by_chunks),
        flag("eval_do_concat_batches", "yes", "Concatenate the predictions of all batches.")
            .explained(by_chunks),
        words("include_for_metrics", "", "What the metric function is given.").explained(by_chunks),
        flag("include_inputs_for_metrics", "no", "Give the metric function the inputs.").explained(by_chunks),
        flag("eval_use_gather_object", "no", "Gather Python objects from all processes.")
            .explained(by_chunks),
        flag("use_legacy_prediction_loop", "no", "Use the old evaluation loop.").explained(by_chunks),
    };
    return rows;
}

std::span<const Argument> logging_arguments() {
    using namespace table;
    constexpr std::string_view levels = "debug|detail|info|warning|error|critical|passive";
    static constexpr std::array rows{
        choice("logging_strategy", "no|steps|epoch", "steps", "When to print and record the loss."),
        number("logging_steps", "500", "Updates between records; below 1 a share of all updates.")
            .at_least(0),
        flag("logging_first_step", "no", "Record the first update too."),
        flag("logging_nan_inf_filter", "yes", "Leave losses that are not finite out of the logged mean."),
        choice("log_format", "text|json", "text",
               "Records as Python prints them, or one JSON object per line."),
        choice("log_level", levels, "passive",
               "What is printed on standard error: info (as passive and debug) everything, warning only "
               "warnings and errors, error and critical only errors; above warning there is no progress bar "
               "unless --disable_tqdm no.")
            .own_of_process(),
        choice("log_level_replica", levels, "warning",
               "What the other processes print; unless it is given, they print nothing.")
            .own_of_process()
            .parallel(),
        flag("log_on_each_node", "yes",
             "Whether the first process of every machine prints messages, or only the first of the run.")
            .parallel(),
        path("rank_log_dir", "", "Folder where process N writes its messages and records to rank-N.log.")
            .own_of_process()
            .parallel(),
        maybe("disable_tqdm", "No progress bar; unset: a bar where standard error is a terminal.")
            .own_of_process(),
        words("report_to", "none",
              "Where records go besides the console and trainer_state.json: tensorboard (all means the "
              "same) or none."),
        path("logging_dir", "",
             "Folder of the TensorBoard file; unset: runs/, date and host in --output_dir."),
        flag("include_tokens_per_second", "no", "Add tokens per second to the results."),
        choice("include_num_input_tokens_seen", "no|all|non_padding", "no",
               "Count the tokens seen in records."),
        text("run_name", "", "A name for the run.")
            .explained("It is kept in training_args.json; nothing reads it."),
        flag("skip_memory_metrics", "yes", "Leave memory use out of the results.")
            .explained("The memory plan is printed before the first step, and it is exactly what is used."),
    };
    return rows;
}

std::span<const Argument> saving_arguments() {
    using namespace table;
    static constexpr std::array rows{
        choice("save_strategy", "no|steps|epoch|best", "steps", "When to write checkpoints."),
        number("save_steps", "500", "Updates between checkpoints; below 1 a share of all updates.")
            .at_least(0),
        integer("save_total_limit", "", "Number of checkpoints to keep."),
        flag("save_final_model", "yes", "Write the model when training ends; no skips it.").of_command(),
        flag("save_only_model", "no", "Checkpoints hold the model alone, so none can be resumed from."),
        path("resume_from_checkpoint", "",
             "Checkpoint folder to continue from; True: the newest complete one of --output_dir, which is "
             "also used when the flag is not given; False: none.")
            .of_command(),
        number(
            "save_buffer_gb", "",
            "Host memory (GiB) from which checkpoints are written in the background; larger ones are "
            "streamed through it while training waits. Unset: what is free, at most a quarter of the memory.")
            .at_least(0),
        flag("ignore_data_skip", "no", "Begin with the first sample when resuming."),
        flag("save_safetensors", "yes", "Write safetensors files.")
            .explained("Weights are always written as safetensors; Python pickles are not."),
        flag("save_on_each_node", "no", "Every machine writes its own copy.")
            .explained("One copy is written, by all processes together."),
        flag("restore_callback_states_from_checkpoint", "no", "Restore Python callbacks from the checkpoint.")
            .explained("There are no Python callbacks; the trainer's own state is always restored."),
        flag("enable_jit_checkpoint", "no", "Write a checkpoint when the process is told to end.")
            .explained("SIGTERM and SIGINT always finish the step and write a checkpoint; SIGUSR1 writes one "
                       "and training continues. In programs of the C++ API this makes SIGTERM do so."),
        path("checkpoint_manager_path", "", "Folder of the fork's own sharded checkpoints.")
            .explained("Checkpoints are Hugging Face folders in --output_dir, whatever the sharding."),
    };
    return rows;
}

std::span<const Argument> profile_arguments() {
    using namespace table;
    static constexpr std::array rows{
        flag("profile", "no",
             "Profile steps after the first two, on all processes: operations, layers, collectives, data and "
             "host; for TensorBoard and Perfetto (docs/profiling.md)."),
        integer("profile_steps", "",
                "Steps to profile, which also switches profiling on; unset: 3, or with --profile_epoch or "
                "--profile_step those of --profile_duration_ms.")
            .at_least(1),
        integer("profile_epoch", "-1",
                "Epoch (from 0) of the step after which profiling starts; also PROFILE_EPOCH."),
        integer("profile_step", "-1",
                "Step of that epoch (from 0) after which profiling starts; also PROFILE_STEP."),
        integer("profile_duration_ms", "20000",
                "Profile no step after this time; ignored by default when a number of steps is given. Also "
                "PROFILE_DURATION_MS.")
            .at_least(1),
        path("profile_logdir", "",
             "Folder for the profile; unset: profile/ beside the checkpoints; also PROFILE_LOGDIR.")
            .own_of_process(),
        flag("scope_names", "no", "Name scopes in errors and traces.")
            .explained("Errors name the layer and the weight, and profiles the scopes, with or without it."),
        path("tuning_cache", "", "Folder where compiled programs and tuning results are kept.")
            .own_of_process()
            .explained("Nothing is compiled at run time, so there is nothing to keep."),
        integer("xla_execution_time_step", "-1", "Measure one step alone.")
            .explained("Every step is timed; the summary gives the median."),
        flag("xla_measure_avg_step_time", "no", "Measure the mean step time.")
            .explained("Every step is timed; the summary gives the median."),
        flag("xla_cache_single_writer", "no", "One process writes the compile cache.")
            .explained("There is no compile cache to write."),
        words("debug", "", "Python debugging aids.")
            .explained("Values that are not finite are found by --on_nan, which names the tensor."),
        flag("tpu_metrics_debug", "no", "Print TPU metrics.").explained("There is no TPU here."),
    };
    return rows;
}

}  // namespace drover
