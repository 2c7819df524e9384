#pragma once

#include "backend/cuda/gemm.h"
#include "backend/machine_peaks.h"

namespace drover::cuda {

/// The GPU's limits as products and copies of large operands reach them, on random numbers (zeros would draw
/// less power).
MachinePeaks measure_peaks(const Launch& launch, GemmEngine& gemm);

}  // namespace drover::cuda
