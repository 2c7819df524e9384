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

}  // namespace

cudaDeviceProp open_gpu(int ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "the GPU's properties cannot be read");
    const Capability capability = capability_of(properties);
    if (capability < oldest_capability)
        throw Error(
            fmt::format("The {} (compute capability {}) is too old for drover, which needs {} or later.",
                        properties.name, text_of(capability), text_of(oldest_capability)),
            "Train on an A100, an RTX 30 or a newer GPU, or on the CPU (--use_cpu).");
    check(cudaSetDevice(ordinal), fmt::format("device {} cannot be chosen", ordinal));
    return properties;
}

Gpu describe_gpu(const cudaDeviceProp& properties, const BackendSettings& settings) {
    const Capability capability = capability_of(properties);
    const std::optional<RunningCode> code = find_running_code();
    if (!code)
        throw Error(
            fmt::format("This build has no code for the {} (compute capability {}).", properties.name,
                        text_of(capability)),
            fmt::format("Build with -DDROVER_CUDA_ARCHITECTURES={} (or =release, for all GPUs), or train on "
                        "the CPU (--use_cpu).",
                        architecture_of(capability)));
    const CodeUse use = use_of(*code, capability);
    if (use.compiled_by_driver)
        print_log(
            stderr,
            "This build has no machine code for the {} (compute capability {}), so its driver compiles the "
            "kernels. The first start is slow; later ones find what the driver kept.\n",
            properties.name, text_of(capability));
    return {.capability = capability,
            .multiprocessors = properties.multiProcessorCount,
            .shared_memory = shared_memory_within(static_cast<int>(properties.sharedMemPerBlockOptin),
                                                  settings.gpu_shared_memory_kb),
            .code = use};
}

}  // namespace drover::cuda
