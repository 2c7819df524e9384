#pragma once

#include <optional>

#include "core/json.h"
#include "io/staged_folder.h"

namespace drover {

/// drover_state.json of a checkpoint: the state of the run, and the digests of all other files. It is written
/// last, so a folder that has it was once complete.
struct CheckpointManifest {
    static constexpr std::string_view file_name = "drover_state.json";
    static constexpr int version = 1;

    Json state = Json::object();
    std::int64_t saved_at = 0;  ///< milliseconds since 1970: tells which of two saves is newer
    std::map<std::string, FileDigest> files;

    /// Ends with a checksum of everything before it.
    std::string text() const;
    /// Error (naming `where`) when it is not such a file, or was modified.
    static CheckpointManifest parse(std::string_view text, std::string_view where);
    static CheckpointManifest read(const std::filesystem::path& folder);
};

/// Why the folder is not a complete checkpoint ("optimizer.safetensors is missing"); nothing when every file
/// is as it was saved. Reads all files.
std::optional<std::string> find_damage(const std::filesystem::path& folder);

}  // namespace drover
