#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace drover {

/// The variable that may hold a job's secret instead of --secret_file.
constexpr const char* launch_secret_variable = "DROVER_LAUNCH_SECRET";

/// Error unless the secret is long enough that it cannot be guessed; `source` names where it came from.
void check_secret(const std::string& secret, const std::string& source);

/// The secret in a file that nobody else may read, one's own or root's (whose file the group may read, too);
/// the line end does not count. Node 0 makes the file,
/// with 128 random bits, where there is none; the other nodes wait for it, at most so long. Error when it
/// does not come, or others may read it.
std::string read_secret_file(const std::filesystem::path& file, bool is_node_0, std::chrono::seconds at_most);

}  // namespace drover
