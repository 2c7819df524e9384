#pragma once

#include "backend/cpu/kernels.h"
#include "backend/machine_peaks.h"

namespace drover::cpu {

/// Measures this machine with as many threads as the kernels use. Without instructions for products of bf16,
/// they are made in fp32, whose peak is then theirs too.
MachinePeaks measure_peaks(const Kernels& kernels, bool has_bf16_products);

}  // namespace drover::cpu
