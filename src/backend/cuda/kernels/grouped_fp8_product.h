#pragma once

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Whether grouped_fp8_product() has code for these sizes on this GPU: Hopper, rows that are multiples of 16
/// bytes.
bool grouped_fp8_product_takes(const Launch& launch, const GroupedFp8Gemm& operation);

/// All experts' products in one kernel that reads the group sizes itself, so the host need not know them.
void grouped_fp8_product(const Launch& launch, const GroupedFp8Gemm& operation);

}  // namespace drover::cuda
