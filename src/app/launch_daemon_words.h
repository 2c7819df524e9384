#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Whether this is the name of Open MPI's daemon, without a folder.
bool is_daemon_name(std::string_view name);

/// What a node itself knows about the daemon that it starts.
struct DaemonRules {
    std::filesystem::path drover;                   ///< this program, which mpirun calls in place of ssh
    std::vector<std::string> mpirun_arguments{};    ///< what this node's user has given to mpirun
    std::function<bool(const std::string&)> is_set  ///< whether an environment variable is set here
        = [](const std::string&) { return false; };
};

/// Error unless the words start Open MPI's daemon with nothing but arguments that say which job it belongs
/// to, where mpirun is, and how it reports: parameters of Open MPI can load modules and run programs. Others
/// are allowed where this node's own command line or environment has them too.
void check_daemon_words(const std::vector<std::string>& words, const DaemonRules& rules);

}  // namespace drover
