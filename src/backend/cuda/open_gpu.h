#pragma once

#include <cuda_runtime_api.h>

#include "backend/backend_settings.h"
#include "backend/cuda/gpu.h"

namespace drover::cuda {

/// Chooses a GPU for this thread and returns its properties. Error when it is too old.
cudaDeviceProp open_gpu(int ordinal);

/// What the chosen GPU can do with this build. Error when the build has no code for it. When the driver has
/// to compile the code, a line says so.
Gpu describe_gpu(const cudaDeviceProp& properties, const BackendSettings& settings);

}  // namespace drover::cuda
