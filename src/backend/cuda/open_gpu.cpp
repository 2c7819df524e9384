#include "backend/cuda/open_gpu.h"

#include <fmt/format.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/running_code.h"
#include "core/console.h"

namespace drover::cuda {
namespace {

Capability capability_of(const cudaDeviceProp& properties) {
    return {properties.major, properties.minor};
}

/// The GPU with its compute capability, for messages.
std::string name_of_gpu(const cudaDeviceProp& properties) {
    return fmt::format("{} (compute capability {})", properties.name, text_of(capability_of(properties)));
}

/// The code that runs on the chosen GPU.
RunningCode running_code_on(const cudaDeviceProp& properties) {
    RunningCode code;
    const cudaError_t status = find_running_code(code);
    const std::string architecture = architecture_of(capability_of(properties));
    switch (status) {
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
            throw Error(
                fmt::format("This build has no code for the {}.", name_of_gpu(properties)),
                fmt::format("Build with -DDROVER_CUDA_ARCHITECTURES={} (or =release, for all GPUs), or train "
                            "on the CPU (--use_cpu).",
                            architecture));
        case cudaErrorUnsupportedPtxVersion:
        case cudaErrorInvalidPtx:
        case cudaErrorJitCompilerNotFound:
        case cudaErrorJitCompilationDisabled:
            throw Error(
                fmt::format("This build has no machine code for the {}, and the driver cannot compile "
                            "its kernels ({}).",
                            name_of_gpu(properties), cudaGetErrorString(status)),
                fmt::format("Update the driver, or build with -DDROVER_CUDA_ARCHITECTURES={}.",
                            architecture));
        default:
            check(status, "its code cannot be started");
            return code;
    }
}

}  // namespace

cudaDeviceProp open_gpu(int ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "the GPU's properties cannot be read");
    if (capability_of(properties) < oldest_capability)
        throw Error(fmt::format("The {} is too old for drover, which needs compute capability {} or later.",
                                name_of_gpu(properties), text_of(oldest_capability)),
                    "Train on an A100, an RTX 30 or a newer GPU, or on the CPU (--use_cpu).");
    check(cudaSetDevice(ordinal), fmt::format("device {} cannot be chosen", ordinal));
    return properties;
}

Gpu describe_gpu(const cudaDeviceProp& properties, const BackendSettings& settings) {
    const Capability capability = capability_of(properties);
    const CodeUse use = use_of(running_code_on(properties), capability);
    if (use.compiled_by_driver)
        print_log(stderr,
                  "This build has no machine code for the {}, so its driver compiles the kernels. "
                  "The first start is slow; later ones find what the driver kept.\n",
                  name_of_gpu(properties));
    return {.capability = capability,
            .multiprocessors = properties.multiProcessorCount,
            .shared_memory = shared_memory_within(static_cast<int>(properties.sharedMemPerBlockOptin),
                                                  settings.gpu_shared_memory_kb),
            .code = use};
}

}  // namespace drover::cuda
