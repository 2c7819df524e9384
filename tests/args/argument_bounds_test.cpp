#include "args/parse_line.h"
#include "args/parse_words.h"

namespace drover {
namespace {

void parse(const std::string& name, const std::string& value) {
    Arguments arguments;
    parse_words(arguments, std::vector<std::string>{"--" + name, value},
                {.kind = ArgumentSource::Kind::command_line});
}

/// The value at a bound is accepted; the next one is refused, naming the flag.
void expect_bound(const std::string& name, const std::string& last, const std::string& beyond) {
    EXPECT_NO_THROW(parse(name, last)) << name;
    EXPECT_MENTIONS(test::error_of<UsageError>([&] { parse(name, beyond); }), "--" + name);
}

TEST(ArgumentBounds, ThereIsAtLeastOneOfWhatIsCounted) {
    for (const char* name : {"per_device_train_batch_size",
                             "per_device_eval_batch_size",
                             "train_batch_size",
                             "num_microbatches",
                             "gradient_accumulation_steps",
                             "eval_accumulation_steps",
                             "max_train_samples",
                             "max_eval_samples",
                             "preprocessing_num_workers",
                             "dataloader_prefetch_factor",
                             "threads",
                             "spmd_dcn_parallelism",
                             "tensor_parallel_size",
                             "pipeline_parallel_size",
                             "virtual_pipeline_size",
                             "context_parallel_size",
                             "ddp_timeout",
                             "ddp_bucket_cap_mb",
                             "early_stopping_patience",
                             "eval_prompts_max_new_tokens",
                             "lora_r",
                             "lora_alpha",
                             "profile_duration_ms",
                             "profile_steps",
                             "torch_empty_cache_steps"})
        expect_bound(name, "1", "0");
}

TEST(ArgumentBounds, ThereIsNoRunWithMoreProcesses) {
    for (const char* name : {"tensor_parallel_size", "spmd_2d_sharding", "spmd_dcn_parallelism",
                             "pipeline_parallel_size", "virtual_pipeline_size"})
        expect_bound(name, "1048576", "1048577");
}

TEST(ArgumentBounds, RatesAndSeedsAreNotNegative) {
    for (const char* name : {"seed", "data_seed", "fsdp_min_num_params", "dataloader_num_workers",
                             "max_length", "eval_prompts_top_k"})
        expect_bound(name, "0", "-1");
    for (const char* name :
         {"learning_rate", "min_lr", "num_train_epochs", "warmup_steps", "warmup_ratio", "weight_decay",
          "adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor", "neftune_noise_alpha",
          "eval_steps", "eval_delay", "logging_steps", "save_steps", "early_stopping_threshold",
          "eval_prompts_temperature", "eval_prompts_top_p", "router_aux_loss_coef"})
        expect_bound(name, "0", "-0.5");
}

TEST(ArgumentBounds, SharesAreAtMostOne) {
    for (const char* name : {"warmup_ratio", "adam_beta1", "adam_beta2", "label_smoothing_factor",
                             "memory_fraction", "lora_dropout", "eval_prompts_top_p"})
        expect_bound(name, "1", "1.5");
}

}  // namespace
}  // namespace drover
