#pragma once

#include "backend/cuda/kernels/device_code.cuh"

/// Kernels that are brought to the multiprocessors while the kernel before them ends, instead of after it:
/// for work of some ten microseconds the time between two kernels counts. Needs compute capability 9.0;
/// elsewhere such a kernel is an ordinary one.
namespace drover::cuda {

/// Waits until the kernels before this one in the stream are over and what they wrote can be read. To be
/// called by every thread of a kernel that launch_early launches, before it touches memory.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// From here on the next kernel, if launch_early launches it, may take what the blocks of this one leave
/// free.
__device__ inline void let_next_kernel_in() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Code that was made for an older GPU does not wait, even if a newer one runs it; where there is such code,
/// no kernel is early.
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

/// As kernel<<<blocks, threads, shared_bytes, stream>>>(arguments…), and reports a launch that was refused.
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
