#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The variable that tells the program which mpirun calls instead of ssh where node 0's launcher listens.
constexpr const char* launch_socket_variable = "DROVER_LAUNCH_SOCKET";

/// The daemon of Open MPI and its arguments, out of a command line that mpirun made for a remote shell. The
/// settings of variables in front of it are left out: the launcher on the node has its own. Error when the
/// line would start anything else, or needs a shell to be understood.
std::vector<std::string> daemon_words(std::string_view command_line);

/// What mpirun calls instead of ssh: host, then words for a shell there. Hands them to node 0's launcher,
/// shows what comes back, and returns the daemon's exit status.
int run_launch_agent(const std::vector<std::string>& words);

}  // namespace drover
