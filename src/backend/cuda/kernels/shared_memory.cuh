#pragma once

#include "backend/cuda/kernels/device_code.cuh"

/// Dynamic shared memory, of which GPUs have different amounts (Gpu::shared_memory).
namespace drover::cuda {

/// What every kernel may have without reserve_shared_memory(). Static memory is limited to it by the
/// compiler.
inline constexpr int plain_shared_memory = 48 * 1024;
/// What a block may have on every GPU.
inline constexpr int least_shared_memory = 99 * 1024;

/// Whether a block may have `bytes` on this GPU, static and dynamic together.
inline bool shared_memory_fits(const Launch& launch, std::int64_t bytes) {
    return bytes <= launch.gpu.shared_memory;
}

/// Must precede the launch of a kernel with this much dynamic memory.
template <class... Parameters>
void reserve_shared_memory(void (*kernel)(Parameters...), int bytes, const char* operation) {
    if (bytes > plain_shared_memory)
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), operation);
}

}  // namespace drover::cuda
