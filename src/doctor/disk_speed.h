#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace drover {

/// How a folder's disk took and gave back a file.
struct DiskSpeed {
    std::string failure{};    ///< why nothing can be written, without a full stop; empty: it can
    std::uint64_t bytes = 0;  ///< that were written
    double write_rate = 0;    ///< bytes per second, until they were on the disk
    double read_rate = 0;     ///< bytes per second, of what the system no longer kept in memory if it let go
    bool damaged = false;     ///< other bytes came back
};

/// Writes to a file without a name, which is gone when this ends, however it ends, and reads it again. Takes
/// about `seconds`; a very slow disk takes as long as one MiB needs. Writes at most 256 MiB, and a tenth of
/// what is free.
DiskSpeed measure_disk(const std::filesystem::path& folder, double seconds);

/// Why no file can be made in a folder, without a full stop; empty: one can. Tried with a file without a
/// name.
std::string why_not_writable(const std::filesystem::path& folder);

/// "ext4", "nfs", "tmpfs"; empty for kinds without a name here.
std::string file_system_name(const std::filesystem::path& folder);

}  // namespace drover
