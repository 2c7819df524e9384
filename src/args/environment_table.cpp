#include "args/environment_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "args/argument_file.h"
#include "args/argument_table.h"
#include "args/argument_value.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

constexpr std::string_view scope_names =
    "Errors name the layer and the weight, and profiles the scopes, with or without it.";
constexpr std::string_view by_block = "Gradients are reduced block by block, so there are no such buckets.";
constexpr std::string_view no_nemo = "NeMo is not used.";
constexpr std::string_view neuron_only = "It tunes another vendor's runtime, which is not used here.";

/// A variable that a run script turns into flags.
constexpr EnvironmentVariable script(std::string_view name, std::string_view meaning) {
    return EnvironmentVariable{name, "", meaning}.of("run_llama_nxd");
}

constexpr std::array variables{
    EnvironmentVariable{"PJRT_DEVICE", "device",
                        "CPU, CUDA or GPU choose the device; TPU means whatever device there is."},
    EnvironmentVariable{"XLA_USE_BF16", "dtype", "1: weights, gradients and activations in bfloat16."},
    EnvironmentVariable{"XLA_DOWNCAST_BF16", "dtype", "1: as XLA_USE_BF16."},
    EnvironmentVariable{"XLA_USE_SPMD", "",
                        "1: the batch of the command line is the batch of all devices together."}
        .of("run_clm"),
    EnvironmentVariable{"XLA_IR_DEBUG", "", "1: scope names in errors and traces.", Standing::explained,
                        scope_names},
    EnvironmentVariable{"XLA_HLO_DEBUG", "", "1: scope names in errors and traces.", Standing::explained,
                        scope_names},
    EnvironmentVariable{"PJRT_ALLOCATOR_FRACTION", "memory_fraction",
                        "Largest share of the device's memory that the plan may take."},
    EnvironmentVariable{"XLA_PERSISTENT_CACHE_PATH", "", "Folder where compiled programs are kept.",
                        Standing::explained, "Nothing is compiled at run time, so there is nothing to keep."},
    EnvironmentVariable{"PROFILE_EPOCH", "profile_epoch",
                        "Epoch (from 0) of the step after which profiling starts."},
    EnvironmentVariable{"PROFILE_STEP", "profile_step", "Step of that epoch after which profiling starts."},
    EnvironmentVariable{"PROFILE_DURATION_MS", "profile_duration_ms", "Profile no step after this time."},
    EnvironmentVariable{"PROFILE_LOGDIR", "profile_logdir", "Folder for the profile."},
    EnvironmentVariable{"TENSORBOARD_LOGGING_DIR", "logging_dir", "Folder of the TensorBoard file."}.of(
        "run_clm"),
    EnvironmentVariable{"HF_TOKEN", "", "Access token of the Hub, before that of `drover login`."},
    EnvironmentVariable{"HUGGING_FACE_HUB_TOKEN", "", "Older name of HF_TOKEN."},
    EnvironmentVariable{"HF_TOKEN_PATH", "", "File of the login's token, instead of $HF_HOME/token."},
    EnvironmentVariable{"HF_HUB_DISABLE_IMPLICIT_TOKEN", "",
                        "1: send no token that is not given on the command line."},
    EnvironmentVariable{"HF_ENDPOINT", "", "Address of the Hub, instead of https://huggingface.co."},
    EnvironmentVariable{"HF_HUB_ETAG_TIMEOUT", "", "Seconds to wait for a connection; unset: 10."},
    EnvironmentVariable{"HF_HUB_DOWNLOAD_TIMEOUT", "",
                        "Seconds without a byte after which a transfer is tried again; unset: 30."},
    EnvironmentVariable{"HF_HUB_DISABLE_PROGRESS_BARS", "", "1: no progress of downloads and uploads."},
    EnvironmentVariable{"HF_HUB_DISABLE_SYMLINKS", "",
                        "1: snapshots of the Hub's cache are copies, not symbolic links."},
    EnvironmentVariable{"HF_HOME", "",
                        "Folder of Hugging Face's caches, which are searched for models and datasets."},
    EnvironmentVariable{"HF_HUB_CACHE", "", "Folder of models and tokenizers, instead of $HF_HOME/hub."},
    EnvironmentVariable{"HUGGINGFACE_HUB_CACHE", "", "Older name of HF_HUB_CACHE."},
    EnvironmentVariable{"TRANSFORMERS_CACHE", "", "Older name of HF_HUB_CACHE."},
    EnvironmentVariable{"HF_DATASETS_CACHE", "",
                        "Folder of prepared datasets, instead of $HF_HOME/datasets."},
    EnvironmentVariable{"XDG_CACHE_HOME", "", "Folder of caches in general, instead of ~/.cache."},
    EnvironmentVariable{"DROVER_CACHE", "", "Folder of token files and other data that this program caches."},
    EnvironmentVariable{
        "DROVER_CPU_ISA", "",
        "avx2, avx512 or amx: the best instructions to use; unset: the best that the processor has."},
    EnvironmentVariable{
        "DROVER_GROUPED_GEMM", "",
        "cublas, streams or kernel: how a GPU multiplies experts' matrices, where their sizes "
        "allow it; unset: by their sizes."},
    EnvironmentVariable{
        "DROVER_ATTENTION_BACKWARD", "",
        "cudnn or kernel: how a GPU computes attention's gradients, where it can; unset: kernel."},
    EnvironmentVariable{"DROVER_ATTENTION_PIECE_MB", "",
                        "MiB that a piece of attention's backward may take on a GPU; unset: 4096."},
    EnvironmentVariable{
        "DROVER_CUDA_GRAPHS", "",
        "0: forward and backward are not recorded; each operation is given to the GPU by itself."},
    EnvironmentVariable{"OMP_NUM_THREADS", "threads", "CPU threads; of a list, the first number."},
    EnvironmentVariable{"NEURON_RT_STOCHASTIC_ROUNDING_EN", "stochastic_rounding",
                        "1: round updates of bfloat16 weights at random."}
        .of("run_clm"),
    EnvironmentVariable{"NEURON_RT_STOCHASTIC_ROUNDING_EN", "use_gpu_compatible_precision",
                        "1: as --use_gpu_compatible_precision 0; 0: as 1."}
        .of("run_llama_nxd"),
    EnvironmentVariable{"NEURON_EXTRACT_GRAPHS_ONLY", "dry_run",
                        "1: plan and check the run without training."}
        .of("run_clm"),
    EnvironmentVariable{"NEURON_EXTRACT_GRAPHS_ONLY", "precompile",
                        "1: train at most 10 steps, and neither load nor write a checkpoint."}
        .of("run_llama_nxd"),
    script("GBS", "Sequences of an update over all processes."),
    script("PP_DEGREE", "Size of the pipeline."),
    script("VPP_DEGREE", "Stages of each process of the pipeline."),
    script("GPU_COMPATIBLE_PRECISION", "0 or 1, for --use_gpu_compatible_precision."),
    script("LLAMA_CONFIG_VERISON", "Version of the config, 3 or 3.1; spelt so in the original."),
    script("LLAMA_CONFIG_VERSION", "Version of the config, 3 or 3.1."),
    script("PERF_TEST", "1: 100 steps, and no checkpoints."),
    script("EARLY_EXIT_STEPS", "Steps of PERF_TEST."),
    script("POD_UID", "The job's name, under Kubernetes."),
    script("ARTIFACT_PATH", "Folder for logs and results, under Kubernetes."),
    script("SHARED_PATH_PREFIX", "Folder of the data, under Kubernetes."),
    EnvironmentVariable{"RANK", "", "Number of this process, from a launcher.", Standing::parallel},
    EnvironmentVariable{"WORLD_SIZE", "", "Number of processes, from a launcher.", Standing::parallel},
    EnvironmentVariable{"LOCAL_RANK", "", "Number of this process on its machine, from a launcher.",
                        Standing::parallel},
    EnvironmentVariable{"OMPI_COMM_WORLD_*", "", "Number and place of this process, from mpirun.",
                        Standing::parallel},
    EnvironmentVariable{"SLURM_*", "", "Number and place of this process, from srun.", Standing::parallel},
    EnvironmentVariable{"HF_HUB_OFFLINE", "", "1: use local folders and caches, never the network."},
    EnvironmentVariable{"TRANSFORMERS_OFFLINE", "", "1: as HF_HUB_OFFLINE."},
    EnvironmentVariable{"HF_DATASETS_OFFLINE", "", "1: the same for datasets."},
    EnvironmentVariable{"USE_TORCH_XLA", "", "Whether Python uses torch_xla.", Standing::explained,
                        "Python is not used; --device or PJRT_DEVICE chooses where to train."},
    EnvironmentVariable{"LIBTPU_INIT_ARGS", "", "Flags of the TPU compiler.", Standing::explained,
                        "There is no TPU and no compiler to pass flags to."},
    EnvironmentVariable{"XLA_FLAGS", "", "Flags of the XLA compiler.", Standing::explained,
                        "There is no XLA compiler to pass flags to."},
    EnvironmentVariable{"NEURON_CC_FLAGS", "", "Flags of the Neuron compiler.", Standing::explained,
                        neuron_only},
    EnvironmentVariable{"NEURON_FUSE_SOFTMAX", "", "A kernel choice of the Neuron compiler.",
                        Standing::explained, neuron_only},
    EnvironmentVariable{"NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", "",
                        "How far the Neuron runtime works ahead.", Standing::explained, neuron_only},
    EnvironmentVariable{"CCOM_SOCKET_IFNAME", "", "Network interface of the Neuron runtime.",
                        Standing::explained,
                        "It tunes another vendor's runtime; NCCL_SOCKET_IFNAME is NCCL's variable."},
    EnvironmentVariable{"XLA_DISABLE_FUNCTIONALIZATION", "", "How PyTorch traces for the XLA compiler.",
                        Standing::explained, "There is no XLA compiler, and nothing is traced."},
    EnvironmentVariable{"FI_*", "", "Settings of libfabric.", Standing::explained,
                        "MPI and NCCL read it themselves where they use libfabric."},
    EnvironmentVariable{"MALLOC_ARENA_MAX", "", "Number of glibc's heaps.", Standing::explained,
                        "The C library reads it itself; a run's large buffers are not on its heaps."},
    EnvironmentVariable{"ALLREDUCE_BUCKET_CAP_MB", "", "Size of gradient buckets.", Standing::explained,
                        by_block},
    EnvironmentVariable{"ALL_GATHER_REDUCE_SCATTER_BUCKET_CAP_MB", "", "Size of ZeRO-1's buckets.",
                        Standing::explained, by_block},
    EnvironmentVariable{"NEMO_EXPM_VERSION", "", "Name of the run in NeMo.", Standing::explained, no_nemo},
    EnvironmentVariable{"EXPLICIT_LOGDIR", "", "Folder of NeMo's logs.", Standing::explained, no_nemo},
    EnvironmentVariable{"ACCELERATE_*", "", "Settings of Accelerate's launcher.", Standing::explained,
                        "Accelerate is not used; give the settings as flags."},
    EnvironmentVariable{"WANDB_*", "", "Settings of Weights & Biases.", Standing::explained,
                        "Records go to the console, JSON files and TensorBoard only."},
};

bool fits(const EnvironmentVariable& variable, std::string_view name) {
    return variable.name.ends_with('*') ? name.starts_with(variable.name.substr(0, variable.name.size() - 1))
                                        : variable.name == name;
}

/// The value for the argument; absent if the variable does not change it.
std::optional<Json> value_of_variable(const EnvironmentVariable& variable, Arguments& arguments,
                                      std::string value) {
    const std::string where = fmt::format("The environment variable {}", variable.name);
    if (variable.sets == "dtype") {
        const auto on = boolean_from_word(value);
        if (!on)
            throw UsageError(fmt::format("{} is \"{}\", which is neither 0 nor 1.", where, value),
                             "Set it to 1, or unset it.");
        return *on ? std::optional<Json>("bfloat16") : std::nullopt;
    }
    if (variable.sets == "device") {
        value = lower_case(value);
        if (value == "tpu") {
            arguments.explain(
                "PJRT_DEVICE=TPU: there is no TPU backend; the run takes a GPU when there is one, else the "
                "CPU.");
            return std::nullopt;
        }
        if (value == "gpu") value = "cuda";
    }
    if (variable.sets == "threads") value = value.substr(0, value.find(','));
    Json read = value_from_text(*arguments.table().find(variable.sets), value, where);
    // Stochastic rounding takes the place of a master copy.
    if (variable.sets == "use_gpu_compatible_precision") read = !read.get<bool>();
    return read;
}

}  // namespace

std::span<const EnvironmentVariable> environment_table() {
    return variables;
}

Environment read_environment() {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos) continue;
        const std::string_view name = text.substr(0, equals);
        for (const EnvironmentVariable& variable : variables)
            if (fits(variable, name)) environment.emplace(name, text.substr(equals + 1));
    }
    return environment;
}

void apply_environment(Arguments& arguments, const Environment& environment, const ArgumentFile* file) {
    for (const EnvironmentVariable& variable : variables) {
        // Variables of one family share a line.
        for (const auto& [name, value] : environment) {
            if (!variable.is_for(arguments.table().command()) || !fits(variable, name) || value.empty())
                continue;
            if (!variable.note.empty())
                arguments.explain(fmt::format("{}: {}", variable.name, variable.note));
            if (arguments.table().find(variable.sets) == nullptr || arguments.given(variable.sets)) continue;
            const bool is_of_file = file != nullptr && file->variables.contains(name);
            if (auto read = value_of_variable(variable, arguments, value))
                arguments.set(variable.sets, std::move(*read),
                              {ArgumentSource::Kind::environment,
                               is_of_file ? fmt::format("{} of {}", name, file->name) : name});
        }
    }
}

bool is_on(const Environment& environment, std::string_view name) {
    const auto found = environment.find(name);
    return found != environment.end() && !found->second.empty() &&
           boolean_from_word(found->second).value_or(true);
}

}  // namespace drover
