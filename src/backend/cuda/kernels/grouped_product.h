#pragma once

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Whether grouped_product() has code for these types and sizes on this GPU: Hopper, 16-bit operands, rows
/// that are multiples of 16 bytes.
bool grouped_product_takes(const Launch& launch, const GroupedGemm& operation);

/// All experts' products in one kernel that reads the group sizes itself, so the host need not know them.
void grouped_product(const Launch& launch, const GroupedGemm& operation);

}  // namespace drover::cuda
