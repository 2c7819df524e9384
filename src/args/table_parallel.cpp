#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> parallel_arguments() {
    using namespace table;
    constexpr std::string_view no_ddp =
        "It tunes PyTorch's DistributedDataParallel, which is not used; gradients are reduced block by "
        "block.";
    static constexpr std::array rows{
        words(
            "fsdp", "",
            "Sharding: full_shard, shard_grad_op, no_shard, hybrid_shard or hybrid_shard_zero2, with offload "
            "and auto_wrap.")
            .parallel(),
        json("fsdp_config", "Settings of --fsdp, as JSON text or file.").parallel(),
        integer("fsdp_min_num_params", "0", "Old spelling of min_num_params in --fsdp_config.")
            .at_least(0)
            .parallel(),
        text("fsdp_transformer_layer_cls_to_wrap", "",
             "Old spelling of transformer_layer_cls_to_wrap in --fsdp_config.")
            .parallel(),
        json("deepspeed", "A DeepSpeed configuration, as JSON text or file.").parallel(),
        integer(
            "spmd_2d_sharding", "0",
            "Size of the tensor-parallel axis of 2-D sharding; 0: off. Weights are sharded over the other "
            "processes as with --spmd_fsdp_sharding. Not with --fsdp or --spmd_fsdp_sharding.")
            .at_least(0)
            .at_most(most_processes)
            .parallel(),
        flag("spmd_fsdp_sharding", "no", "Shard weights, gradients and optimizer over all processes.")
            .parallel(),
        integer("spmd_dcn_parallelism", "1",
                "Number of groups that hold whole copies of the sharded model; --fsdp hybrid_shard without "
                "it: one "
                "per machine.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        flag("spmd_debug", "no", "Print the mesh and the place of every weight."),
        integer("tensor_parallel_size", "1", "Processes that share each block's matrices.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        flag("sequence_parallel", "no",
             "Split the residual stream over the tensor-parallel processes; --spmd_2d_sharding does unless "
             "this "
             "is no.")
            .parallel(),
        integer(
            "kv_replicator", "1",
            "Copies of each key/value head, for more tensor-parallel processes than heads; unset: as many "
            "as are needed.")
            .at_least(1)
            .parallel(),
        integer("pipeline_parallel_size", "1",
                "Processes that each hold some of the layers. They pass the micro-batches of "
                "--gradient_accumulation_steps on to each other.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        integer("virtual_pipeline_size", "1",
                "Stages of each process of the pipeline. Several: less idle time, more memory and messages.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        choice("pipeline_schedule", "1f1b|interleaved|zero_bubble", "",
               "Order of a pipeline's work; unset: 1f1b, or interleaved if --virtual_pipeline_size is above "
               "1. zero_bubble computes gradients of weights where a process would be idle.")
            .parallel(),
        text("pipeline_cuts", "",
             "First layer of every pipeline stage but the first, as in 3,7,12, or balanced: as even as "
             "possible in what layers and head compute; unset: as even as possible in layers, the last "
             "stages having more.")
            .parallel(),
        integer("context_parallel_size", "1", "Processes that share each sequence.").at_least(1).parallel(),
        flag("use_zero1_optimizer", "no", "Shard the optimizer's state over the data-parallel processes.")
            .parallel(),
        integer("ddp_timeout", "1800", "Seconds that a process waits for the others.")
            .at_least(1)
            .at_most(most_seconds)
            .parallel(),
        flag("comm_debug", "no",
             "Compare what the processes exchange before every collective, and name those that disagree; "
             "slow.")
            .parallel(),
        flag("comm_stats", "no",
             "At the end, say how long the first process's collectives took in a step, and how much of that "
             "overlapped with computing.")
            .of_command()
            .parallel(),
        integer("local_rank", "-1", "Number of the process on its machine.")
            .own_of_process()
            .explained("The launcher (mpirun, srun) says which process this is."),
        choice("ddp_backend", "nccl|gloo|mpi|ccl|hccl|cncl|mccl|xccl", "",
               "Library that moves data between processes.")
            .explained("Processes use MPI on CPUs and NCCL on GPUs; there is nothing to choose."),
        maybe("ddp_find_unused_parameters", "Look for weights without gradients.").explained(no_ddp),
        integer("ddp_bucket_cap_mb", "", "Size of gradient buckets.").at_least(1).explained(no_ddp),
        maybe("ddp_broadcast_buffers", "Send buffers to all processes.").explained(no_ddp),
        maybe("ddp_static_graph", "The graph never changes.").explained(no_ddp),
        json("parallelism_config", "Accelerate's description of the mesh.")
            .explained("The mesh comes from --tensor_parallel_size, --fsdp and the spmd flags."),
        integer("tpu_num_cores", "", "Number of TPU cores.").explained("There is no TPU here."),
    };
    return rows;
}

std::span<const Argument> neuron_arguments() {
    using namespace table;
    static constexpr std::array rows{
        integer("train_batch_size", "", "Sequences per data-parallel process and update.")
            .at_least(1)
            .at_most(most_of_a_batch),
        integer("num_microbatches", "1",
                "Micro-batches that --train_batch_size is cut into; without that, as "
                "--gradient_accumulation_steps.")
            .at_least(1)
            .at_most(most_of_a_batch),
        number("min_lr", "", "Lowest learning rate; chooses cosine_with_min_lr unless a schedule is given.")
            .at_least(0),
        integer("constant_steps", "0", "Updates at the lowest rate at the end of the schedule.")
            .explained("The cosine reaches its lowest rate at the last step; for a constant tail use "
                       "--lr_scheduler_type warmup_stable_decay."),
        maybe("use_selective_checkpoint", "yes: --recompute selective; no: --recompute full."),
        maybe("use_gpu_compatible_precision",
              "yes: fp32 master copy; no: bfloat16 weights with stochastic rounding."),
        integer("checkpoint_freq", "", "As --save_steps; below 1 no checkpoints are written."),
        path("checkpoint_dir", "", "As --output_dir, unless that is given."),
        integer("num_kept_checkpoint", "", "As --save_total_limit; below 1 all are kept."),
        text("loading_step", "",
             "Checkpoint of --output_dir to continue from: the number of its step; latest_if_exists: the "
             "newest complete one; -1: none, and the run starts from the beginning (with "
             "--overwrite_output_dir if there are some).")
            .of_command(),
        flag("save_load_xser", "yes", "One file per tensor.")
            .explained("Checkpoints are safetensors files, which any number of processes reads in parts."),
        flag("async_checkpoint_saving", "no", "Write checkpoints in the background.")
            .explained("There is nothing to choose: a checkpoint appears only when it is complete."),
        flag("pretrained_weight", "no", "Load weights from the tag pretrained_weight.")
            .explained("Name the folder of the weights with --model_name_or_path."),
        flag("use_master_weight_in_ckpt", "no", "Keep master weights in checkpoints.")
            .explained("A master copy that cannot be restored from the weights is always kept."),
        flag("avoid_saving_lower_precision_weights", "no", "Leave bfloat16 weights out of checkpoints.")
            .explained("A checkpoint is always a model folder that transformers can load."),
        flag("use_fp32_optimizer", "no", "Optimizer state in fp32.")
            .explained("Use --moments_dtype float32, and --master_weights yes for an fp32 master copy."),
        flag("use_meta_device_init", "no", "Build the model without storage first.")
            .explained("This is always so: no process ever creates a weight that it does not keep."),
        flag("use_deferred_init", "no", "Build the model without storage first.")
            .explained("This is always so: no process ever creates a weight that it does not keep."),
        flag("qkv_linear", "no", "One product for queries, keys and values.")
            .explained("Queries, keys and values are always one product."),
        flag("fuse_qkv", "yes", "One weight for queries, keys and values.")
            .explained("Queries, keys and values are always one product; files keep the published names."),
        flag("transpose_nki_inputs", "yes", "Layout of a Neuron kernel.")
            .explained("It describes a kernel that is not used here."),
        flag("fuse_microbatches", "no", "One graph for all micro-batches.")
            .explained("There are no graphs to compile."),
        flag("deallocate_pipeline_outputs", "yes", "Free stage outputs after sending them.")
            .explained("All buffers are planned before the first step; none is freed or made later."),
        path("trace_file_path", "",
             "File for a timeline of updates 2 to 4 in Chrome's trace format: what every process computes "
             "when, on one clock, and the pipeline's bubble."),
        path("tb_dir", "", "Folder for TensorBoard's file: --report_to tensorboard with this --logging_dir."),
        path("metrics_file", "results.json", "File for the results.")
            .explained("Results are in all_results.json in --output_dir."),
    };
    return rows;
}

}  // namespace drover
