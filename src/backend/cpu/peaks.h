#pragma once

#include <optional>

#include "backend/cpu/kernels.h"
#include "backend/cpu/tiles/tile_unit.h"
#include "backend/machine_peaks.h"

namespace drover::cpu {

/// Measures this machine with as many threads as the kernels use. Products of bf16 are measured on the matrix
/// unit, else with vector instructions for them; without either they run in fp32 and have its peak.
MachinePeaks measure_peaks(const Kernels& kernels, std::optional<tiles::TileUnit> bf16_tiles);

}  // namespace drover::cpu
