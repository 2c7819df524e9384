#pragma once

#include <unordered_map>

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

/// Whether the kernel's code waits: code that was made for an older GPU does not, even if a newer one runs
/// it.
inline bool can_be_early(const void* kernel) {
    thread_local std::unordered_map<const void*, bool> known;
    const auto [entry, is_new] = known.try_emplace(kernel, false);
    if (is_new) {
        cudaFuncAttributes attributes{};
        check(cudaFuncGetAttributes(&attributes, kernel), "a kernel's attributes");
        entry->second = attributes.ptxVersion >= 90;
    }
    return entry->second;
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
    config.numAttrs = can_be_early(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), operation);
}

}  // namespace drover::cuda
