#pragma once

namespace drover::cpu::tiles {

/// Whether AMX's bf16 tile products work here: the processor and the kernel offer them, this process was
/// allowed their state, and a product tried under a signal handler gave the right numbers. CPUID's
/// description of the tiles is not needed: they are configured with the architectural palette. Never crashes.
/// The first call runs the test; later ones return its result.
bool amx_usable();

}  // namespace drover::cpu::tiles
