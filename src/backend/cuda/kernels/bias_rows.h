#pragma once

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// c ([M,N], may be strided) = bias ([N], may be absent) + product ([M,N] f32, packed, may be absent) (+ c
/// when accumulating), in every row; summed in fp32 and rounded once.
void bias_rows(const Launch& launch, const Tensor& c, const Tensor& product, const Tensor& bias,
               bool accumulate);

}  // namespace drover::cuda
