#pragma once

#include <filesystem>
#include <string>

#include "hub/client.h"

namespace drover {

/// Fetches a file that is not of the Hub into a folder of downloads, as the datasets library keeps them:
/// named by hashes of its address and version, with a .json file that says both. Returns its path; nothing is
/// fetched when it is there. HubError when it cannot be had.
std::filesystem::path fetch_web_file(HubClient& client, const std::string& url,
                                     const std::filesystem::path& folder);

}  // namespace drover
