#pragma once

#include <cstdint>

namespace drover::cpu::tiles {

/// Multiplies tiles that never leave their registers, on every thread. Returns the number of floating-point
/// operations. Only where amx_usable() (amx_probe.h) says so.
double amx_peak_loop(std::int64_t repetitions);

}  // namespace drover::cpu::tiles
