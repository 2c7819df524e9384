#include <array>

#include "args/argument_table.h"
#include "args/optimizer_names.h"

namespace drover {

std::span<const Argument> run_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path("output_dir", "trainer_output", "Folder for the model and the results."),
        flag("overwrite_output_dir", "no",
             "Start from the beginning even if --output_dir holds files or checkpoints; nothing is deleted.")
            .of_command(),
        flag("steal_lock", "no",
             "Take --output_dir from the run that has locked it, which then stops at its next checkpoint."),
        flag("do_train", "no", "Train."),
        flag("do_eval", "no", "Evaluate; an --eval_strategy other than no also asks for it."),
        flag("do_predict", "no", "Predict on a test set.")
            .explained("run_clm.py has no prediction step, so there is nothing to do."),
        integer("seed", "42", "Seed of weights, sample order and noise.").at_least(0),
        integer("data_seed", "", "Seed of the sample order alone; unset: --seed.").at_least(0),
        flag("dry_run", "no",
             "Print the settings that differ from their defaults, precisions, memory plan, steps, tokens and "
             "time, and stop before step 1.")
            .of_command(),
        flag("verbose", "no",
             "Print every setting before the run, not only those that differ from their defaults; also -v.")
            .of_command()
            .own_of_process(),
        choice("device", "auto|cpu|cuda", "auto", "Where to train; auto takes a GPU when there is one."),
        flag("use_cpu", "no", "Train on the CPU, as --device cpu."),
        integer("threads", "", "CPU threads; unset: one per core.")
            .own_of_process()
            .at_least(1)
            .at_most(most_threads),
        number("memory_fraction", "", "Largest share of the device's memory that the plan may take.")
            .at_least(0)
            .at_most(1),
        flag("full_determinism", "no", "Forbid kernels whose results vary from run to run.")
            .explained("Runs are deterministic without it: equal settings give equal bits."),
        choice("on_nan", "stop|skip|continue", "stop",
               "What to do when loss or gradient norm is not finite: stop and name the first bad tensor, "
               "skip the update, or continue as the original does."),
        flag("help", "no",
             "Print the arguments that are used most and stop. A word after it asks for more: all, a group "
             "such as data, or the name of an argument."),
        flag("help_markdown", "no", "Print the page docs/run_clm.md and stop.").hidden(),
    };
    return rows;
}

std::span<const Argument> optimization_arguments() {
    using namespace table;
    static constexpr std::array rows{
        integer("per_device_train_batch_size", "8",
                "Sequences per device and micro-batch; of all devices together with xla_fsdp_v2, "
                "XLA_USE_SPMD=1 or any --spmd flag except --spmd_debug.")
            .at_least(1)
            .at_most(most_of_a_batch),
        flag("auto_find_batch_size", "no",
             "If --per_device_train_batch_size does not fit into memory, take the largest batch that does. "
             "It is known and said before the first step."),
        integer("gradient_accumulation_steps", "1", "Micro-batches per update.")
            .at_least(1)
            .at_most(most_of_a_batch),
        number("num_train_epochs", "3.0", "How often to go through the data; may be a fraction.").at_least(0),
        integer("max_steps", "-1", "Number of updates; above 0 it replaces --num_train_epochs.")
            .at_most(most_updates),
        number("learning_rate", "5e-05", "Highest learning rate.").at_least(0),
        choice("lr_scheduler_type",
               "linear|cosine|cosine_with_restarts|polynomial|constant|constant_with_warmup|inverse_sqrt|"
               "reduce_lr_on_plateau|cosine_with_min_lr|cosine_warmup_with_min_lr|warmup_stable_decay",
               "linear", "How the learning rate changes."),
        json("lr_scheduler_kwargs", "Settings of the schedule, for example {\"num_cycles\": 2}."),
        number("warmup_ratio", "0.0",
               "Share of the updates used for warm-up; --warmup_steps takes precedence.")
            .at_least(0)
            .at_most(1),
        number("warmup_steps", "0", "Updates used for warm-up; below 1 a share of all updates.")
            .at_least(0)
            .at_most(most_updates),
        choice("optim", all_optimizer_names, "adamw_torch",
               "Optimizer. AdamW in any of its forms, adafactor, sgd, adagrad and rmsprop run here."),
        text("optim_args", "", "Settings of the optimizer, \"key=value,key=value\"."),
        flag("adafactor", "no", "The old spelling of --optim adafactor."),
        number("weight_decay", "0.0", "Weight decay; norms and biases have none.").at_least(0),
        number("adam_beta1", "0.9", "AdamW's decay of the first moment.").at_least(0).at_most(1),
        number("adam_beta2", "0.999", "AdamW's decay of the second moment.").at_least(0).at_most(1),
        number("adam_epsilon", "1e-08", "AdamW's epsilon.").at_least(0),
        number("max_grad_norm", "1.0", "Gradients are scaled down to this global norm; 0: never."),
        number("label_smoothing_factor", "0.0",
               "Share of the target probability taken from the correct token.")
            .at_least(0)
            .at_most(1),
        number("neftune_noise_alpha", "", "Strength of the noise added to embeddings in training.")
            .at_least(0),
        choice("loss_denominator", "true|hf457", "true",
               "true: the loss is the mean over all targets of the step; hf457: divide by the labels of all "
               "positions, as transformers 4.46.2 to 4.57 do."),
        flag("average_tokens_across_devices", "yes", "Count the targets of all processes.")
            .explained("This is always so: the loss is divided by the targets of the whole step."),
    };
    return rows;
}

std::span<const Argument> precision_arguments() {
    using namespace table;
    static constexpr std::array rows{
        flag("bf16", "no",
             "Train in bfloat16. Float32 weights get an fp32 master copy; weights that are bfloat16 already, "
             "by --dtype, checkpoint or config, have none, as in transformers: small updates are then lost "
             "unless --master_weights yes or --stochastic_rounding is given."),
        flag("fp16", "no", "Train in float16 with an fp32 master copy and loss scaling."),
        flag("bf16_full_eval", "no", "Evaluate with weights rounded to bfloat16, outside training.")
            .explained(
                "Evaluation uses the number format of training; --dtype bfloat16 chooses it for both."),
        flag("fp16_full_eval", "no", "Evaluate with weights rounded to float16, outside training.")
            .explained("Evaluation uses the number format of training."),
        maybe("tf32", "Allow TF32 in fp32 matrix products of a GPU; a CPU multiplies fp32 numbers as fp32."),
        choice(
            "fp8", "none|tensorwise|blockwise", "none",
            "Multiply the blocks' matrices in FP8 (E4M3), with one scale for each tensor, or for every 128 "
            "numbers. Weights, gradients, optimizer and checkpoints keep their formats. A CPU emulates "
            "it."),
        maybe(
            "master_weights",
            "Keep an fp32 copy of the weights; unset: with --bf16 where the weights are float32, and always "
            "with float16."),
        choice("moments_dtype", "float32|bfloat16", "",
               "Number format of the optimizer's moments; unset: that of the gradients."),
        choice("residual_dtype", "compute|float32", "compute",
               "Number format of the residual stream; compute is the format of the weights."),
        flag("stochastic_rounding", "no", "Round updates of bfloat16 weights at random, without bias."),
        choice("recompute", "none|selective|selective_mlp|selective_attention|full", "none",
               "What backward recomputes instead of keeping it; the numbers do not change."),
        integer("recompute_blocks", "",
                "With --recompute or a flag that implies it: recompute only this many blocks, the first "
                "ones; the others keep everything. Unset: all blocks.")
            .at_least(1),
        flag("gradient_checkpointing", "no", "Keep only the inputs of the blocks, as --recompute full."),
        json("gradient_checkpointing_kwargs", "Settings of gradient checkpointing.")
            .explained("use_reentrant chooses between two Python mechanisms; there is one here."),
        flag("spmd_grad_chkpt", "no", "Keep only the inputs of the blocks, as --recompute full."),
        choice("half_precision_backend", "auto|apex|cpu_amp|cuda_amp", "auto",
               "Which library to use for mixed precision.")
            .explained("Mixed precision is built in; no library is chosen."),
        choice("fp16_backend", "auto|apex|cuda_amp", "auto", "Which library to use for mixed precision.")
            .explained("Mixed precision is built in; no library is chosen."),
        text("fp16_opt_level", "O1", "Apex's level of mixed precision.")
            .explained("Apex is not used; --fp16 is fp32 master weights with float16 compute."),
        flag("xla_autocast", "no", "Cast to bfloat16 inside operations.")
            .explained("Use --bf16 with --dtype float32: bfloat16 compute with an fp32 master copy."),
    };
    return rows;
}

std::span<const Argument> loading_arguments() {
    using namespace table;
    constexpr std::string_view threads =
        "Batches are made ahead by threads of this process; no setting is needed.";
    static constexpr std::array rows{
        flag("dataloader_drop_last", "no",
             "Leave out the last batch when it is not full, in training and evaluation."),
        integer("dataloader_num_workers", "0", "Worker processes that load batches.")
            .at_least(0)
            .explained(threads),
        flag("dataloader_pin_memory", "yes", "Copy batches through pinned memory.").explained(threads),
        flag("dataloader_persistent_workers", "no", "Keep worker processes between epochs.")
            .explained(threads),
        integer("dataloader_prefetch_factor", "", "Batches that each worker loads ahead.")
            .at_least(1)
            .explained(threads),
        text("dataloader_multiprocessing_context", "", "How worker processes are started.")
            .explained(threads),
        flag("dataloader_in_order", "yes", "Keep the order of batches.")
            .explained("Batches always keep their order."),
        choice("train_sampling_strategy", "random|sequential|group_by_length", "random",
               "Order of the training sequences."),
        flag("group_by_length", "no", "As --train_sampling_strategy group_by_length."),
        text("length_column_name", "length", "Column with lengths for group_by_length.")
            .explained("Lengths are those of the token sequences; no column is read."),
        flag("remove_unused_columns", "yes", "Drop columns that the model does not take.")
            .explained("Only tokens, mask and labels reach the model, with or without the flag."),
        words("label_names", "", "Names of the columns with labels.")
            .explained("The labels are the tokens themselves."),
        maybe("split_batches",
              "As split_batches in --accelerator_config: the batch is that of all processes.")
            .parallel(),
        maybe("dispatch_batches", "As dispatch_batches in --accelerator_config.").explained(threads),
        json("accelerator_config", "Settings of the Accelerate library, as JSON text or file.").parallel(),
    };
    return rows;
}

}  // namespace drover
