#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The variable that tells the program mpirun runs instead of ssh where node 0's launcher listens.
constexpr const char* launch_socket_variable = "DROVER_LAUNCH_SOCKET";

/// Open MPI's daemon and its arguments, from a command line that mpirun made for a remote shell. The variable
/// assignments before it are dropped: the launcher on the node has its own. Error if the line would start
/// anything else, or needs a shell to interpret it.
std::vector<std::string> daemon_words(std::string_view command_line);

/// The program that mpirun runs instead of ssh: host, then words for a shell there. Passes them to node 0's
/// launcher, prints the output that comes back, and returns the daemon's exit status.
int run_launch_agent(const std::vector<std::string>& words);

}  // namespace drover
