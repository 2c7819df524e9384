#pragma once

#include <cstdint>

namespace drover::cpu::amx {

/// Multiplies tiles that never leave their registers, on every thread; the floating-point operations made.
/// Only where usable() (probe.h) says so.
double peak_loop(std::int64_t repetitions);

}  // namespace drover::cpu::amx
