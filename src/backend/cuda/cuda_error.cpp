#include "backend/cuda/cuda_error.h"

#include <fmt/format.h>

namespace drover::cuda {

void check(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // reported here, so the next launch must not report it again
    if (status == cudaErrorMemoryAllocation)
        throw Error(
            fmt::format("The GPU has no room for {}.", what),
            "Stop what else uses it (nvidia-smi shows that), or take a smaller batch or more recompute.");
    throw Error(fmt::format("The GPU failed: {} ({}: {}).", what, cudaGetErrorName(status),
                            cudaGetErrorString(status)),
                "Run again with CUDA_LAUNCH_BLOCKING=1 DROVER_CUDA_GRAPHS=0 to see which operation it was; "
                "dmesg shows faults of the hardware.");
}

}  // namespace drover::cuda
