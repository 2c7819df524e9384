#include "core/machine_identity.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/content_hash.h"

namespace drover {

std::string host_name() {
    std::array<char, 256> name{};
    const bool known = gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
    return known ? name.data() : "localhost";
}

std::string boot_id() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return boot;
}

std::uint64_t machine_identity() {
    // Containers may have the same name everywhere; the boot id differs for every start of a kernel.
    const auto digest = ContentHash().add(host_name()).add(boot_id()).digest();
    std::uint64_t identity = 0;
    std::memcpy(&identity, digest.data(), sizeof identity);
    return identity;
}

namespace {

/// The start time of a process; empty when none has this number, or only a zombie.
std::optional<std::int64_t> start_of(std::int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    // The program's name comes second, in parentheses, and may contain anything.
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream fields(line.substr(name_end + 1));
    std::string field;
    constexpr int state = 3, start_time = 22;
    for (int number = state; fields >> field; ++number) {
        if (number == state && (field == "Z" || field == "X")) return std::nullopt;
        if (number == start_time) return std::stoll(field);
    }
    return std::nullopt;
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
    std::error_code unknown;
    return {.host = host_name(),
            .boot = boot_id(),
            .pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string(),
            .pid = getpid(),
            .started = start_of(getpid()).value_or(0)};
}

std::string ProcessIdentity::text() const {
    return fmt::format("process {} on host {}", pid, host);
}

ProcessFate fate_of(const ProcessIdentity& process) {
    const ProcessIdentity own = ProcessIdentity::own();
    const bool here = process.host == own.host && process.boot == own.boot && !own.boot.empty() &&
                      process.pid_namespace == own.pid_namespace;
    if (!here) return ProcessFate::unknown;
    if (const auto started = start_of(process.pid))
        return *started == process.started ? ProcessFate::running : ProcessFate::ended;
    // A system may hide the processes of other users, which still exist.
    const bool hidden = kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == EPERM;
    return hidden ? ProcessFate::running : ProcessFate::ended;
}

}  // namespace drover
