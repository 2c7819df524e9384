#pragma once

#include "backend/cuda/gpu.h"

namespace drover::cuda {

/// Which of the module's codes the driver runs on the current GPU, from a kernel that tells; absent if there
/// is none for it. Waits for the GPU.
std::optional<RunningCode> find_running_code();

}  // namespace drover::cuda
