#pragma once

#include <filesystem>
#include <system_error>

namespace drover {

/// The folder, or the nearest one above it that exists: where it would be made.
inline std::filesystem::path existing_folder(const std::filesystem::path& folder) {
    std::error_code unknown;
    std::filesystem::path at = std::filesystem::absolute(folder, unknown);
    if (unknown) at = folder;
    while (!std::filesystem::exists(at, unknown) && at.has_relative_path()) at = at.parent_path();
    return at;
}

}  // namespace drover
