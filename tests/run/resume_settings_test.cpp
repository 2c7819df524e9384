#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "args/argument_table.h"
#include "args/run_settings.h"

namespace drover {
namespace {

/// Settings that need not be compared with the checkpoint's, and why.
const std::map<std::string, std::string>& not_compared() {
    static const std::map<std::string, std::string> reasons = [] {
        std::map<std::string, std::string> made;
        const auto excuse = [&](const char* why, std::initializer_list<const char*> names) {
            for (const char* name : names) made[name] = why;
        };
        excuse("how this command is run, not what is computed", {"output_dir",
                                                                 "overwrite_output_dir",
                                                                 "steal_lock",
                                                                 "do_train",
                                                                 "do_eval",
                                                                 "dry_run",
                                                                 "verbose",
                                                                 "help",
                                                                 "help_markdown",
                                                                 "cache_dir",
                                                                 "token",
                                                                 "push_to_hub",
                                                                 "hub_model_id",
                                                                 "hub_strategy",
                                                                 "hub_token",
                                                                 "hub_private_repo",
                                                                 "hub_always_push",
                                                                 "hub_revision",
                                                                 "push_to_hub_organization",
                                                                 "overwrite_cache",
                                                                 "memory_fraction",
                                                                 "auto_find_batch_size",
                                                                 "resume_from_checkpoint",
                                                                 "loading_step",
                                                                 "profile",
                                                                 "profile_steps",
                                                                 "profile_epoch",
                                                                 "profile_step",
                                                                 "profile_duration_ms",
                                                                 "profile_logdir",
                                                                 "trace_file_path",
                                                                 "spmd_debug",
                                                                 "comm_stats",
                                                                 "comm_debug",
                                                                 "log_level_replica",
                                                                 "log_on_each_node",
                                                                 "rank_log_dir",
                                                                 "ddp_timeout"});
        excuse("the model's config is compared instead",
               {"model_name_or_path", "model_type", "model_revision", "config_name", "config_overrides",
                "num_layer", "hidden_size"});
        excuse("the tokenizer's content is compared instead", {"tokenizer_name"});
        excuse("it concerns new weights, and these are loaded", {"init"});
        excuse("it stands for other settings, which are compared",
               {"adafactor", "group_by_length", "min_lr", "num_microbatches", "train_batch_size",
                "use_gpu_compatible_precision", "checkpoint_freq", "checkpoint_dir", "num_kept_checkpoint",
                "tb_dir", "deepspeed", "accelerator_config", "split_batches"});
        excuse("equal numbers",
               {"loss_type", "pad_to_multiple_of", "gmm", "gmm_stack", "recompute", "recompute_blocks",
                "gradient_checkpointing", "spmd_grad_chkpt", "use_selective_checkpoint", "threads"});
        excuse("refused", {"load_in_4bit", "load_in_8bit"});
        excuse("others than the checkpoint's are refused (RunAdapters::check_same)",
               {"use_peft", "peft_lora", "adapter_name_or_path", "lora_r", "lora_alpha", "lora_dropout",
                "lora_target_modules", "lora_target_parameters", "lora_modules_to_save", "lora_task_type",
                "use_rslora", "use_dora"});
        excuse("other devices and meshes differ by rounding, as docs/checkpoints.md says",
               {"device", "use_cpu", "fsdp", "fsdp_config", "fsdp_min_num_params",
                "fsdp_transformer_layer_cls_to_wrap", "virtual_pipeline_size", "pipeline_schedule",
                "pipeline_cuts", "spmd_2d_sharding", "spmd_dcn_parallelism", "spmd_fsdp_sharding",
                "tensor_parallel_size", "sequence_parallel", "kv_replicator", "pipeline_parallel_size",
                "context_parallel_size", "use_zero1_optimizer"});
        excuse("compared from trainer_state.json",
               {"per_device_train_batch_size", "eval_steps", "logging_steps", "save_steps"});
        excuse("evaluations, records and files, not what is trained", {"validation_file",
                                                                       "max_eval_samples",
                                                                       "eval_strategy",
                                                                       "eval_delay",
                                                                       "per_device_eval_batch_size",
                                                                       "eval_on_start",
                                                                       "prediction_loss_only",
                                                                       "load_best_model_at_end",
                                                                       "metric_for_best_model",
                                                                       "greater_is_better",
                                                                       "early_stopping_patience",
                                                                       "early_stopping_threshold",
                                                                       "eval_packing",
                                                                       "dataset_test_split",
                                                                       "eval_prompts",
                                                                       "eval_prompts_max_new_tokens",
                                                                       "eval_prompts_temperature",
                                                                       "eval_prompts_top_k",
                                                                       "eval_prompts_top_p",
                                                                       "logging_strategy",
                                                                       "logging_first_step",
                                                                       "logging_nan_inf_filter",
                                                                       "log_format",
                                                                       "log_level",
                                                                       "disable_tqdm",
                                                                       "report_to",
                                                                       "logging_dir",
                                                                       "include_tokens_per_second",
                                                                       "include_num_input_tokens_seen",
                                                                       "save_strategy",
                                                                       "save_total_limit",
                                                                       "save_final_model",
                                                                       "save_only_model",
                                                                       "save_buffer_gb"});
        excuse("given to continue in another way than the checkpoint says", {"ignore_data_skip"});
        return made;
    }();
    return reasons;
}

TEST(ResumeCommand, ComparesOrExcusesEverySetting) {
    const auto names = arguments_compared_on_resume();
    std::set<std::string> acting;
    for (const ArgumentGroup& group : run_clm_table().groups())
        for (const Argument& argument : group.arguments) {
            if (argument.standing == Standing::explained) continue;
            const std::string name(argument.name);
            acting.insert(name);
            const bool compared = std::find(names.begin(), names.end(), name) != names.end();
            EXPECT_NE(compared, not_compared().contains(name)) << name;
        }
    for (const auto& [name, why] : not_compared()) EXPECT_TRUE(acting.contains(name)) << name;
}

}  // namespace
}  // namespace drover
