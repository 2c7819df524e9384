#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hub/client.h"
#include "hub/repository.h"

namespace drover {

/// Called with the number of bytes that arrived since the last call; negative when some must be fetched
/// again. By any thread. False ends the transfer. Must not throw.
using ArrivedBytes = std::function<bool(std::int64_t)>;

/// One file that is to be fetched.
struct Download {
    Repository repository{};  ///< for messages; without an id: the file is not of the Hub
    RepositoryFile file;      ///< an empty hash: only the size is checked
    std::string url;
    std::string
        version{};  ///< what the server calls this content, so that no other one is continued; or empty
    std::filesystem::path destination;  ///< in an existing folder
    std::filesystem::path lock;         ///< in an existing folder
    /// Beside it, with something unique and ".incomplete" added, the bytes are collected.
    std::filesystem::path partial;
};

/// Fetches a file unless it is there, and checks its size and checksum. Continues what an earlier attempt of
/// this program left. Several processes may do this at once: one fetches and the others wait; where the file
/// system's locks do not work, both fetch and either's result is whole. HubError, or Error when the disk is
/// full, the content is not what the Hub lists, or `arrived` ended it.
void download_file(HubClient& client, const Download& download, const ArrivedBytes& arrived);

}  // namespace drover
