#include "app/common_flags.h"

#include <array>

#include "args/command.h"

namespace drover {
namespace {

constexpr std::array bench_model{
    CommonArgument{"model", "config.json, or a name of examples/configs"},
    CommonArgument{"layers", "blocks of the model; 0: as the config says"},
    CommonArgument{"lora_r", "train LoRA adapters of this rank; 0: the model"},
};
constexpr std::array bench_step{
    CommonArgument{"batch", "rows per step"},
    CommonArgument{"seq", "tokens per row"},
    CommonArgument{"dtype", "or float32"},
    CommonArgument{"fp8", "or tensorwise, blockwise"},
    CommonArgument{"moe", "how experts' products are computed"},
    CommonArgument{"optim", "or adafactor, sgd, adagrad, rmsprop"},
    CommonArgument{"recompute", "or selective, full: less memory, more time"},
    CommonArgument{"fsdp", "the copies of --fsdp full_shard, in one process"},
};
constexpr std::array bench_run{
    CommonArgument{"steps", "steps to run, the first two for warm-up"},
    CommonArgument{"init", "counter: new weights faster"},
    CommonArgument{"device", "auto takes a GPU when there is one"},
    CommonArgument{"threads", "of the CPU; 0: OMP_NUM_THREADS, or all"},
    CommonArgument{"json", "print one JSON object and nothing else"},
};
constexpr std::array bench_groups{
    CommonGroup{"Model", bench_model},
    CommonGroup{"Step", bench_step},
    CommonGroup{"Run", bench_run},
};

constexpr std::array convert_model{
    CommonArgument{"input_dir", "model folder, file with all weights, or files per rank"},
    CommonArgument{"hf_model_name", "instead: a repository in the Hugging Face cache"},
    CommonArgument{"output_dir", "where the result appears, complete"},
    CommonArgument{"output_format", "safetensors, bin, gguf, checkpoint or resumable"},
    CommonArgument{"dtype", "float32, bfloat16, float16, or q8_0 in GGUF"},
    CommonArgument{"merge_adapter", "LoRA adapter that is merged into the weights"},
    CommonArgument{"max_shard_size", "of a file; 5GB when empty"},
    CommonArgument{"config", "config.json, if it is not beside the weights"},
};
constexpr std::array convert_ranks{
    CommonArgument{"convert_from_full_state", "a full model to files per rank"},
    CommonArgument{"convert_to_full_state", "files per rank to a full model"},
    CommonArgument{"tp_size", "tensor ranks; counted when files are read"},
    CommonArgument{"pp_size", "pipeline ranks, likewise"},
    CommonArgument{"ep_size", "expert ranks, likewise"},
    CommonArgument{"virtual_pp_size", "stages of each pipeline rank"},
    CommonArgument{"qkv_linear", "q, k and v are one layer"},
    CommonArgument{"kv_size_multiplier", "how often key/value heads are repeated"},
    CommonArgument{"save_xser", "a file for each of a rank's tensors"},
    CommonArgument{"model_style", "names of the weights in files per rank"},
};
constexpr std::array convert_groups{
    CommonGroup{"Model", convert_model},
    CommonGroup{"Files per rank", convert_ranks},
};

}  // namespace

std::span<const CommonGroup> common_flags(const Command& command) {
    const std::string name = command.full_name();
    if (name == "drover bench") return bench_groups;
    if (name == "drover convert") return convert_groups;
    return {};
}

}  // namespace drover
