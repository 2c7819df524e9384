#pragma once

#include <optional>

#include "backend/cpu/amx/gemm.h"
#include "backend/cpu/kernels.h"
#include "backend/machine_peaks.h"

namespace drover::cpu {

/// Measures this machine with as many threads as the kernels use. Products of bf16 are measured on the matrix
/// unit, else with vector instructions for them; without either they are made in fp32, whose peak is then
/// theirs too.
MachinePeaks measure_peaks(const Kernels& kernels, bool has_bf16_products,
                           std::optional<amx::TileUnit> matrix_unit);

}  // namespace drover::cpu
