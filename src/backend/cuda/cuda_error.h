#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/error.h"

namespace drover::cuda {

/// Throws Error with CUDA's own words when a call failed. What a kernel did wrong shows at a later call.
void check(cudaError_t status, std::string_view what);

}  // namespace drover::cuda
