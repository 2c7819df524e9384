#pragma once

#include <optional>

#include "core/json.h"
#include "io/staged_folder.h"

namespace drover {

/// drover_state.json of a checkpoint: the state of the run, and what all other files must be. It is written
/// last, so a folder that has it was complete once.
struct CheckpointManifest {
    static constexpr std::string_view file_name = "drover_state.json";
    static constexpr int version = 1;

    Json state = Json::object();
    std::int64_t saved_at = 0;  ///< milliseconds since 1970: which of two saves is the newer one
    std::map<std::string, FileDigest> files;

    /// Ends with a checksum of everything before it.
    std::string text() const;
    /// Error (naming `where`) when it is not such a file, or one that was changed.
    static CheckpointManifest parse(std::string_view text, std::string_view where);
    static CheckpointManifest read(const std::filesystem::path& folder);
};

/// Why the folder is not a complete checkpoint ("optimizer.safetensors is missing"); nothing when every file
/// is as it was saved. Reads all files.
std::optional<std::string> find_damage(const std::filesystem::path& folder);

}  // namespace drover
