#pragma once

#include <cstdint>
#include <filesystem>

namespace drover {

/// The file of the program; empty when the kernel does not tell.
std::filesystem::path program_path();

/// Seconds since the kernel started this process, loading of the program included; to about 10 ms.
double seconds_since_process_start();

/// The most memory this process has had resident at once, in bytes.
std::int64_t peak_resident_bytes();

}  // namespace drover
