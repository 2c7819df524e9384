#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/gpu.h"

namespace drover::cuda {

/// Asks a kernel for what it was compiled, and so which of the module's codes the driver runs on the current
/// GPU. Returns why it cannot be started if it cannot. Waits for the GPU.
cudaError_t find_running_code(RunningCode& code);

}  // namespace drover::cuda
