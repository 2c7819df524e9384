#pragma once

#include <cstdint>

namespace drover {

/// Equal for processes of one machine, and hardly ever for two machines.
std::uint64_t machine_identity();

}  // namespace drover
