#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace drover {

/// The variable that may hold a job's secret instead of --secret_file.
constexpr const char* launch_secret_variable = "DROVER_LAUNCH_SECRET";

/// Error unless the secret is too long to be guessed; `source` names where it came from.
void check_secret(const std::string& secret, const std::string& source);

/// The secret in a file that only its owner may read. The owner is this user or root; root's file may also be
/// readable by the group. The line end is ignored. Node 0 creates the file, with 128 random bits, if there is
/// none; the other nodes wait for it up to this time. Error if it does not appear, or others may read it.
std::string read_secret_file(const std::filesystem::path& file, bool is_node_0, std::chrono::seconds at_most);

}  // namespace drover
