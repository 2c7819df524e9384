#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/error.h"

namespace drover::cuda {

/// Throws Error with CUDA's message when a call failed. A kernel's own error is reported by a later call.
void check(cudaError_t status, std::string_view what);

}  // namespace drover::cuda
