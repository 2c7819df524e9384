#pragma once

#include <string_view>

#include "backend/cuda/gemm.h"
#include "backend/machine_peaks.h"

namespace drover::cuda {

/// The GPU's peak rates, measured with products and copies of large operands, on random numbers (zeros would
/// draw less power).
MachinePeaks measure_peaks(const Launch& launch, GemmEngine& gemm);

/// The manufacturer's figure for dense bf16 products, by the GPU's name; 0 when it is not known here.
double rated_bf16_flops(std::string_view gpu);

}  // namespace drover::cuda
