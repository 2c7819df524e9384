#include "args/command_text.h"

#include <array>

namespace drover {
namespace {

// ------------------------------------------------------------------------------------------------------
// run_clm

constexpr std::array clm_model{
    CommonArgument{"model_name_or_path", "start from the weights of a folder or Hub name"},
    CommonArgument{"config_name", "new weights: config.json, its folder or Hub name"},
    CommonArgument{"tokenizer_name", "when it is not the model's own"},
    CommonArgument{"use_peft", "train LoRA adapters instead of all weights"},
};
constexpr std::array clm_data{
    CommonArgument{"dataset_name", "folder or Hub name; a,b mixes several"},
    CommonArgument{"train_file", "txt, json, csv, parquet, Arrow or tokens"},
    CommonArgument{"validation_file", "otherwise a share of the training rows"},
    CommonArgument{"block_size", "tokens of a sequence"},
};
constexpr std::array clm_training{
    CommonArgument{"do_train", "train; --do_eval: evaluate"},
    CommonArgument{"per_device_train_batch_size", "sequences at a time"},
    CommonArgument{"gradient_accumulation_steps", "times that, per update"},
    CommonArgument{"num_train_epochs", "how often; or --max_steps: updates"},
    CommonArgument{"learning_rate", "with --lr_scheduler_type, --warmup_steps"},
    CommonArgument{"bf16", "compute in bfloat16"},
    CommonArgument{"gradient_checkpointing", "less memory, more time"},
};
constexpr std::array clm_output{
    CommonArgument{"output_dir", "model, checkpoints, results"},
    CommonArgument{"logging_steps", "updates between records"},
    CommonArgument{"eval_strategy", "evaluate while training"},
    CommonArgument{"save_steps", "updates between checkpoints"},
};
constexpr std::array clm_run{
    CommonArgument{"dry_run", "plan memory, steps and time, then stop"},
    CommonArgument{"fsdp", "full_shard: split the model over processes"},
};
constexpr std::array clm_common{
    CommonGroup{"Model", clm_model},  CommonGroup{"Data", clm_data}, CommonGroup{"Training", clm_training},
    CommonGroup{"Files", clm_output}, CommonGroup{"Run", clm_run},
};

constexpr CommandText run_clm_text{
    .usage = "--NAME VALUE ...\nARGUMENTS.yaml [--NAME VALUE ...]     (or .json; flags take precedence)\n",
    .summary = "Train and evaluate causal language models with the command lines of run_clm.py.",
    .examples =
        "drover run_clm --config_name config.json --tokenizer_name tokenizer/ \\\n"
        "    --train_file text.txt --do_train --output_dir out\n"
        "drover run_clm --model_name_or_path meta-llama/Llama-3.2-1B --dataset_name my/folder \\\n"
        "    --bf16 --do_train --output_dir out\n",
    .common = clm_common,
    .page =
        R"(Trains and evaluates causal language models with the command lines of `run_clm.py`. It accepts every
argument of versions 4 and 5, of the forks for sharded training, and of `run_llama_nxd.py`.
)",
    .notes =
        R"(- The words of a file `run_clm.args` beside the program are put before those of the command line,
  unless that names a file of arguments.
)"};

// ------------------------------------------------------------------------------------------------------
// run_llama_nxd

constexpr std::array nxd_model{
    CommonArgument{"training_config", "folder with the model's config.json"},
    CommonArgument{"training_dir", "tokenized rows, as drover tokenize writes them"},
    CommonArgument{"seq_len", "tokens of a sequence"},
    CommonArgument{"pretrained_weight_dir", "start from these weights"},
};
constexpr std::array nxd_training{
    CommonArgument{"train_batch_size", "sequences per process and update"},
    CommonArgument{"num_microbatches", "parts of that"},
    CommonArgument{"max_steps", "updates"},
    CommonArgument{"lr", "highest learning rate; must be given"},
    CommonArgument{"min_lr", "lowest one"},
    CommonArgument{"warmup_steps", "updates until the highest"},
};
constexpr std::array nxd_processes{
    CommonArgument{"tensor_parallel_size", "processes per block"},
    CommonArgument{"pipeline_parallel_size", "stages of a pipeline"},
    CommonArgument{"use_zero1_optimizer", "shard the optimizer's state"},
    CommonArgument{"use_selective_checkpoint", "recompute attention alone"},
};
constexpr std::array nxd_files{
    CommonArgument{"checkpoint_dir", "none are written without it"},
    CommonArgument{"checkpoint_freq", "updates between checkpoints"},
    CommonArgument{"loading_step", "number, or latest_if_exists"},
    CommonArgument{"tb_dir", "folder for TensorBoard"},
    CommonArgument{"dry_run", "plan memory, steps and time, then stop"},
};
constexpr std::array nxd_common{
    CommonGroup{"Model and data", nxd_model},
    CommonGroup{"Training", nxd_training},
    CommonGroup{"Processes and memory", nxd_processes},
    CommonGroup{"Files", nxd_files},
};

constexpr CommandText run_llama_nxd_text{
    .usage = "--NAME VALUE ...\nARGUMENTS.yaml [--NAME VALUE ...]     (or .json; flags take precedence)\n",
    .summary =
        "Train a Llama model with tensor, pipeline and sequence parallelism and ZeRO-1, from the "
        "command lines of neuronx-distributed's run_llama_nxd.py.",
    .examples =
        "drover launch --nproc_per_node 8 run_llama_nxd --training_config 70B_config_llama3 \\\n"
        "    --training_dir wikicorpus_llama3_tokenized_8k --tensor_parallel_size 8 --lr 1.5e-5\n",
    .common = nxd_common,
    .page =
        R"(Trains a Llama model with tensor, pipeline and sequence parallelism and ZeRO-1, from the command
lines of neuronx-distributed's `run_llama_nxd.py`. It has every flag of that script with the script's
defaults, except that attention is fused unless `--use_flash_attention 0`. Numbers, data order and
files are those of the script, with these corrections: `--weight_decay` acts, the loss is that of all
data-parallel processes, one process is enough where `--tensor_parallel_size` is 1, and nothing in
`--tb_dir` is deleted.
)",
    .notes = {}};

// ------------------------------------------------------------------------------------------------------
// sft

constexpr std::array sft_model{
    CommonArgument{"model_name_or_path", "folder or Hub name of the model"},
    CommonArgument{"use_peft", "train LoRA adapters instead of all weights"},
    CommonArgument{"lora_r", "their rank; with --lora_target_modules"},
    CommonArgument{"chat_template_path", "when the model has none"},
};
constexpr std::array sft_data{
    CommonArgument{"dataset_name", "file, folder or Hub name; a,b mixes several"},
    CommonArgument{"max_length", "tokens of an example"},
    CommonArgument{"packing", "several examples in one row"},
    CommonArgument{"assistant_only_loss", "learn the answers alone"},
    CommonArgument{"eval_strategy", "with --validation_split_percentage"},
};
constexpr std::array sft_training{
    CommonArgument{"per_device_train_batch_size", "rows at a time"},
    CommonArgument{"gradient_accumulation_steps", "times that, per update"},
    CommonArgument{"num_train_epochs", "how often; or --max_steps: updates"},
    CommonArgument{"learning_rate", "for adapters often ten times this"},
    CommonArgument{"gradient_checkpointing", "less memory, more time"},
};
constexpr std::array sft_output{
    CommonArgument{"output_dir", "model or adapters, checkpoints, results"},
    CommonArgument{"logging_steps", "updates between records"},
    CommonArgument{"save_steps", "updates between checkpoints"},
    CommonArgument{"dry_run", "plan memory, steps and time, then stop"},
};
constexpr std::array sft_common{
    CommonGroup{"Model", sft_model},
    CommonGroup{"Examples", sft_data},
    CommonGroup{"Training", sft_training},
    CommonGroup{"Files", sft_output},
};

constexpr CommandText sft_text{
    .usage = "--NAME VALUE ...\nARGUMENTS.yaml [--NAME VALUE ...]     (or .json, or --config FILE)\n",
    .summary =
        "Fine-tune a causal language model on conversations, prompts with completions, or text, with "
        "the command lines of TRL's sft.",
    .examples =
        "drover sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name conversations.jsonl \\\n"
        "    --packing --output_dir out\n"
        "drover sft recipe.yaml --learning_rate 1e-4 --use_peft --lora_target_modules all-linear\n",
    .common = sft_common,
    .page =
        R"(Fine-tunes a causal language model on conversations, prompts with completions, or text, with the
command lines of TRL's `trl sft` (1.16). It has the arguments of TRL's scripts, of SFTConfig and
ModelConfig and of the Trainer, with TRL's defaults where these differ from
[run_clm](run_clm.md)'s: learning rate 2e-5, bf16, gradient checkpointing, a record every 10 updates,
float32 master weights. [guides/finetune.md](guides/finetune.md) shows the whole way, from a file of
conversations to talking with the result.

Records have what TRL's have: `entropy` (of the predictions, in nats), `mean_token_accuracy` and
`num_tokens`; those of evaluations begin with `eval_`. Two things differ from TRL. Special tokens that are
spelled in a message stay text, unless `--allow_special_tokens`. A run that evaluates also does so once
at its end. (With several replicas, `num_tokens` is this one's tokens times their number.)
)",
    .notes =
        R"(- `--config FILE.yaml`, in any place, names such a file, too.
)"};

}  // namespace

const CommandText& command_text(const ArgumentTable& table) {
    if (&table == &sft_table()) return sft_text;
    return &table == &run_clm_table() ? run_clm_text : run_llama_nxd_text;
}

}  // namespace drover
