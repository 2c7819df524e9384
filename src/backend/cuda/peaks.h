#pragma once

#include <string_view>

#include "backend/cuda/gemm.h"
#include "backend/machine_peaks.h"

namespace drover::cuda {

/// The GPU's limits as products and copies of large operands reach them, on random numbers (zeros would draw
/// less power).
MachinePeaks measure_peaks(const Launch& launch, GemmEngine& gemm);

/// The maker's figure for dense bf16 products, by the GPU's name; 0 when it is not known here.
double rated_bf16_flops(std::string_view gpu);

}  // namespace drover::cuda
