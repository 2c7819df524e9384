#pragma once

#include "backend/cuda/kernels/device_code.cuh"

/// Kernels that are launched while the preceding kernel is still finishing, instead of after it: for kernels
/// of some ten microseconds the gap between two of them matters. Needs compute capability 9.0; elsewhere such
/// a kernel is an ordinary one.
namespace drover::cuda {

/// Waits until the preceding kernels in the stream have finished and their writes are visible. Must be called
/// by every thread of a kernel launched by launch_early, before it touches memory.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// From here on the next kernel, if launched by launch_early, may use the resources that this kernel's blocks
/// leave free.
__device__ inline void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Like kernel<<<blocks, threads, shared_bytes, launch.stream>>>(arguments…), and reports a launch that was
/// refused. The kernel calls wait_for_earlier_kernels().
template <class... Parameters, class... Arguments>
void launch_early(const char* operation, const Launch& launch, void (*kernel)(Parameters...), dim3 blocks,
                  int threads, std::size_t shared_bytes, const Arguments&... arguments) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = launch.stream;
    config.attrs = &early;
    config.numAttrs = launch.gpu.code.starts_early ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), operation);
}

}  // namespace drover::cuda
