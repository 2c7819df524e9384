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

/// Code compiled for an older GPU does not wait, even on a newer one. If the build contains such code, no
/// kernel is launched early.
constexpr bool all_code_waits() {
    for (const int architecture : {__CUDA_ARCH_LIST__})
        if (architecture < 900) return false;
    return true;
}

inline bool kernels_can_be_early() {
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "the GPU in use");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "the GPU's capability");
    return all_code_waits() && major >= 9;
}

/// Like kernel<<<blocks, threads, shared_bytes, stream>>>(arguments…), and reports a launch that was refused.
/// The kernel calls wait_for_earlier_kernels().
template <class... Parameters, class... Arguments>
void launch_early(const char* operation, void (*kernel)(Parameters...), dim3 blocks, int threads,
                  std::size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = kernels_can_be_early() ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), operation);
}

}  // namespace drover::cuda
