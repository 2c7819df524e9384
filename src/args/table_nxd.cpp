#include <array>
#include <vector>

#include "args/argument_table.h"
#include "core/error.h"

/// The table of `drover run_llama_nxd`: names and defaults of run_llama_nxd.py.
namespace drover {
namespace {

std::span<const Argument> nxd_model_arguments() {
    using namespace table;
    constexpr std::string_view never_whole =
        "This is always so: no process ever creates a weight that it does not keep.";
    static constexpr std::array rows{
        path("training_config", "", "Folder with the model's config.json, the file itself, or its Hub name.")
            .own_of_process(),
        integer("num_layer", "-1", "Number of layers, instead of the config's; -1: the config's.")
            .at_least(-1),
        integer("hidden_size", "-1",
                "Width of the model, instead of the config's; -1: the config's. head_dim follows.")
            .at_least(-1),
        integer("seq_len", "4096",
                "Tokens of a sequence. If given, the rows of --training_dir must have this length; otherwise "
                "their own length is taken. max_position_embeddings grows to it.")
            .at_least(2)
            .at_most(most_of_a_batch),
        flag("use_flash_attention", "yes",
             "Fused attention. 0: the plain kernels, which are much slower on a GPU; a CPU has only one "
             "kernel."),
        flag("transpose_nki_inputs", "yes", "Layout of a Neuron kernel.")
            .explained("It describes a kernel that is not used here."),
        flag("use_meta_device_init", "no", "Build the model without storage first.").explained(never_whole),
        flag("use_deferred_init", "no", "Build the model without storage first.").explained(never_whole),
        integer("seed", "1234", "Seed of new weights; above 0.").at_least(1),
    };
    return rows;
}

std::span<const Argument> nxd_data_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path("training_dir", "",
             "Folder of tokenized blocks, as `drover tokenize --llama-version` writes it. It is read in "
             "order: "
             "data-parallel process r of n takes rows r, r + n, and so on; what does not fill an update is "
             "dropped, and epochs repeat until --max_steps."),
        integer("train_batch_size", "16", "Sequences per data-parallel process and update.")
            .at_least(1)
            .at_most(most_of_a_batch),
        integer("num_microbatches", "8",
                "Micro-batches that --train_batch_size is cut into; it must divide that.")
            .at_least(1)
            .at_most(most_of_a_batch),
    };
    return rows;
}

std::span<const Argument> nxd_optimization_arguments() {
    using namespace table;
    static constexpr std::array rows{
        integer("max_steps", "100", "Number of updates.").at_least(1).at_most(most_updates),
        number("lr", "", "Highest learning rate; must be given.").at_least(0),
        number("min_lr", "", "Lowest learning rate; unset: 0.").at_least(0),
        integer("warmup_steps", "", "Updates during which the learning rate rises; unset: none.")
            .at_least(0)
            .at_most(most_updates),
        integer("constant_steps", "",
                "Updates at --min_lr at the end; unset: none. Between them the rate falls as a cosine.")
            .at_least(0)
            .at_most(most_updates),
        number("beta1", "0.9", "AdamW's decay of the first moment.").at_least(0).at_most(1),
        number("beta2", "0.95", "AdamW's decay of the second moment.").at_least(0).at_most(1),
        number("weight_decay", "0.01",
               "Weight decay; norms and biases have none. The original always takes 0.01, whatever the flag "
               "says.")
            .at_least(0),
        flag(
            "use_fp32_optimizer", "no",
            "AdamW as older transformers had it: epsilon 1e-6 (otherwise 1e-8) that bias correction does not "
            "scale, decay after the update, moments in float32."),
    };
    return rows;
}

std::span<const Argument> nxd_precision_arguments() {
    using namespace table;
    static constexpr std::array rows{
        flag("use_gpu_compatible_precision", "yes",
             "bfloat16 weights have an fp32 master copy and fp32 gradients; 0: neither, and updates are "
             "rounded "
             "at random (stochastic rounding)."),
        flag("use_amp", "no", "Compute with float32 weights in bfloat16."),
        choice("dtype", "bfloat16|float32", "float32",
               "Number format of the weights; also XLA_DOWNCAST_BF16=1."),
        flag("use_selective_checkpoint", "no",
             "Recompute only attention, and the whole MLP too if --seq_len is 8192; 0: every block is "
             "recomputed from its input."),
    };
    return rows;
}

std::span<const Argument> nxd_parallel_arguments() {
    using namespace table;
    static constexpr std::array rows{
        integer("tensor_parallel_size", "8", "Processes that share each block's matrices.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        integer("pipeline_parallel_size", "1", "Processes that each hold some of the layers.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        integer("virtual_pipeline_size", "1",
                "Stages of each process of the pipeline. Several: less idle time, more memory and messages.")
            .at_least(1)
            .at_most(most_processes)
            .parallel(),
        integer("context_parallel_size", "1",
                "Processes that share each sequence; above 1 not available yet.")
            .at_least(1)
            .parallel(),
        flag("use_sequence_parallel", "yes", "Split the residual stream over the tensor-parallel processes.")
            .parallel(),
        flag("use_zero1_optimizer", "no", "Shard the optimizer's state over the data-parallel processes.")
            .parallel(),
        integer(
            "kv_replicator", "1",
            "Copies of each key/value head, for more tensor-parallel processes than heads; unset: as many as "
            "are needed.")
            .at_least(1)
            .parallel(),
        flag("qkv_linear", "no",
             "With --checkpoint_format nxd: files have queries, keys and values as one layer, with "
             "--kv_replicator copies of keys and values. Without: no effect; they are always one product."),
        flag("fuse_qkv", "yes", "With --qkv_linear in files of nxd's format: one weight for all three."),
        flag("fuse_microbatches", "no", "One graph for all micro-batches.")
            .explained("There are no graphs to compile."),
        flag("deallocate_pipeline_outputs", "yes", "Free stage outputs after sending them.")
            .explained("All buffers are planned before the first step; none is freed or made later."),
    };
    return rows;
}

std::span<const Argument> nxd_checkpoint_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path(
            "checkpoint_dir", "",
            "Folder of the checkpoints step_N. Unset: none are written, and only --tb_dir and --metrics_file "
            "are."),
        integer("checkpoint_freq", "100000", "Updates between checkpoints; below 1: none are written."),
        text("loading_step", "-1",
             "Checkpoint of --checkpoint_dir to continue from: the number N of step_N; latest_if_exists: the "
             "newest complete one, if there is one; -1: none, and nothing is deleted."),
        integer("num_kept_checkpoint", "-1", "Number of checkpoints to keep; below 1: all."),
        flag("async_checkpoint_saving", "no",
             "Write checkpoints in the background while training continues; 0: training waits."),
        flag("pretrained_weight", "no",
             "Start from the weights in the folder pretrained_weight of --checkpoint_dir, if no step is "
             "loaded."),
        path("pretrained_weight_dir", "",
             "Start from the weights in this folder, if no step is loaded: a model folder, or shards of "
             "neuronx-distributed."),
        choice(
            "checkpoint_format", "hf|nxd", "hf",
            "hf: Hugging Face folders of whole tensors, which any number of processes loads. nxd: files per "
            "tensor, pipeline and data rank of this mesh, as neuronx-distributed writes them."),
        flag("save_load_xser", "yes",
             "With --checkpoint_format nxd: one file per tensor. Without: no effect; checkpoints are "
             "safetensors files. Both forms of neuronx-distributed's shards are recognised when they are "
             "loaded."),
        flag("use_master_weight_in_ckpt", "no", "Keep master weights in checkpoints.")
            .explained("A master copy that cannot be restored from the weights is always kept."),
        flag("avoid_saving_lower_precision_weights", "no", "Leave bfloat16 weights out of checkpoints.")
            .explained("A checkpoint is always a model folder that transformers can load."),
    };
    return rows;
}

std::span<const Argument> nxd_logging_arguments() {
    using namespace table;
    static constexpr std::array rows{
        integer("logging_interval", "1", "Updates between records; the first update is always recorded.")
            .at_least(1),
        path("tb_dir", "output",
             "Folder in which TensorBoard's folder is created; empty: none. Nothing in it is deleted."),
        path("metrics_file", "results.json", "File for results; what it holds already is kept."),
        path("trace_file_path", "",
             "File for a timeline of updates 2 to 4 in Chrome's trace format: what every process computes "
             "when, "
             "on one clock, and the pipeline's bubble."),
    };
    return rows;
}

std::span<const Argument> nxd_own_arguments() {
    using namespace table;
    static constexpr std::array shared{"device",
                                       "threads",
                                       "tf32",
                                       "fp8",
                                       "memory_fraction",
                                       "max_grad_norm",
                                       "on_nan",
                                       "init",
                                       "pipeline_schedule",
                                       "pipeline_cuts",
                                       "steal_lock",
                                       "save_buffer_gb",
                                       "dry_run",
                                       "verbose",
                                       "log_level",
                                       "log_level_replica",
                                       "log_on_each_node",
                                       "rank_log_dir",
                                       "spmd_debug",
                                       "ddp_timeout",
                                       "comm_debug",
                                       "comm_stats",
                                       "profile",
                                       "profile_steps",
                                       "profile_epoch",
                                       "profile_step",
                                       "profile_duration_ms",
                                       "profile_logdir"};
    static constexpr std::array own{
        flag("precompile", "no",
             "Train at most 10 steps, and neither load nor write a checkpoint nor results: a trial of mesh, "
             "data, "
             "files and memory. Also NEURON_EXTRACT_GRAPHS_ONLY=1."),
        flag("help", "no",
             "Print the arguments that are used most and stop. A word after it asks for more: all, a group "
             "such as data, or the name of an argument."),
        flag("help_markdown", "no", "Print the page docs/run_llama_nxd.md and stop.").hidden(),
    };
    static const std::vector<Argument> rows = [] {
        std::vector<Argument> all;
        for (const char* name : shared) {
            const Argument* row = run_clm_table().find(name);
            require(row != nullptr, "a row that the commands share is not in run_clm's table");
            all.push_back(*row);
        }
        all.insert(all.end(), own.begin(), own.end());
        return all;
    }();
    return rows;
}

}  // namespace

const ArgumentTable& run_llama_nxd_table() {
    static const std::array groups{
        ArgumentGroup{"model", "Model", "Which model.", nxd_model_arguments()},
        ArgumentGroup{"data", "Data", "Which rows, and how many at a time.", nxd_data_arguments()},
        ArgumentGroup{"optimization", "Optimization", "Steps, learning rate and optimizer.",
                      nxd_optimization_arguments()},
        ArgumentGroup{"precision", "Precision and memory", "Number formats and what is recomputed.",
                      nxd_precision_arguments()},
        ArgumentGroup{"parallel", "Several processes",
                      "How the processes share the model; those left over are data-parallel.",
                      nxd_parallel_arguments()},
        ArgumentGroup{"checkpoints", "Checkpoints", "What is written, and what a run starts from.",
                      nxd_checkpoint_arguments()},
        ArgumentGroup{"records", "Records", "What is printed and recorded.", nxd_logging_arguments()},
        ArgumentGroup{"own", "Of this program", "What the original script does not have.",
                      nxd_own_arguments()},
    };
    static const ArgumentTable table("run_llama_nxd", groups, {});
    return table;
}

}  // namespace drover
