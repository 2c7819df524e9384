#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> explained_arguments() {
    using namespace table;
    constexpr std::string_view compiled =
        "The program is already compiled, and its kernels are fused by hand.";
    constexpr std::string_view python_only = "It concerns Python's memory or loops and has no effect here.";
    constexpr std::string_view trackers = "Records go to the console, JSON files and TensorBoard only.";
    static constexpr std::array rows{
        text("project", "huggingface", "Trackio's project.").explained(trackers),
        text("trackio_space_id", "", "Trackio's space.").explained(trackers),
        text("trackio_bucket_id", "", "Trackio's bucket.").explained(trackers),
        text("trackio_static_space_id", "", "Trackio's read-only space.").explained(trackers),
        flag("torch_compile", "no", "Compile the model with PyTorch.").explained(compiled),
        text("torch_compile_backend", "", "Compiler of PyTorch.").explained(compiled),
        text("torch_compile_mode", "", "Mode of PyTorch's compiler.").explained(compiled),
        text("torchdynamo", "", "Old spelling of --torch_compile_backend.").explained(compiled),
        flag("use_liger_kernel", "no", "Use fused Triton kernels.").explained(compiled),
        json("liger_kernel_config", "Which Triton kernels to use.").explained(compiled),
        flag("jit_mode_eval", "no", "Trace the model for evaluation.").explained(compiled),
        flag("use_ipex", "no", "Use Intel's PyTorch extension.").explained(compiled),
        flag("use_mps_device", "no", "Use an Apple GPU.").explained("There is no backend for Apple GPUs."),
        flag("use_cache", "no", "Keep a key/value cache in training.")
            .explained("Training keeps no key/value cache."),
        words("optim_target_modules", "", "Layers for GaLore and APOLLO.")
            .explained("These optimizers are not available; every layer is trained."),
        integer("torch_empty_cache_steps", "", "Updates between emptying PyTorch's cache.")
            .at_least(1)
            .explained(python_only),
        integer("past_index", "-1", "Output that holds a memory of the past.").explained(python_only),
        text("mp_parameters", "", "Settings of SageMaker.").explained(python_only),
        text("ray_scope", "last", "Scope of Ray's hyper-parameter search.").explained(python_only),
    };
    return rows;
}

}  // namespace drover
