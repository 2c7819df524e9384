#pragma once

#include <cstdint>
#include <string>

namespace drover {

/// The machine's name in its network.
std::string host_name();
/// Unique for every start of the kernel; empty where the kernel does not provide it.
std::string boot_id();

/// Equal for processes of one machine, and hardly ever for two machines.
std::uint64_t machine_identity();

}  // namespace drover
