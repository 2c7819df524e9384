#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Whether this is the name of Open MPI's daemon, without a path.
bool is_daemon_name(std::string_view name);

/// A node's own information about the daemon that it starts.
struct DaemonRules {
    std::filesystem::path drover;                 ///< this program, which mpirun runs instead of ssh
    std::vector<std::string> mpirun_arguments{};  ///< that this node's user has given to mpirun
    /// Reads an environment variable of this node; nothing if it is not set.
    std::function<std::optional<std::string>(const std::string&)> variable = [](const std::string&) {
        return std::optional<std::string>();
    };
};

/// Error unless the words start Open MPI's daemon with only arguments that tell which job it belongs to,
/// where mpirun is, where processes go and how it reports. Other parameters of Open MPI can load modules,
/// write files and run programs; they are allowed only if this node's own command line or environment gives
/// them the same value.
void check_daemon_words(const std::vector<std::string>& words, const DaemonRules& rules);

}  // namespace drover
