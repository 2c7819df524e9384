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

/// Distinguishes a process from all others, including those on other machines and earlier ones with its
/// number.
struct ProcessIdentity {
    std::string host;
    std::string boot;           ///< see boot_id()
    std::string pid_namespace;  ///< containers of one machine number their processes independently
    std::int64_t pid = 0;
    std::int64_t started = 0;  ///< clock ticks since the machine's start

    /// Of this process.
    static ProcessIdentity own();

    /// "process 17 on host node3".
    std::string text() const;

    bool operator==(const ProcessIdentity&) const = default;
};

enum class ProcessFate : std::uint8_t {
    running,
    ended,
    unknown,  ///< it is on another machine, or ran before this machine's last start
};

ProcessFate fate_of(const ProcessIdentity& process);

}  // namespace drover
