#pragma once

#include <algorithm>
#include <filesystem>

namespace drover {

/// Whether `path` is `folder` or in it. Both are taken as they are written: make them canonical first.
inline bool lies_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace drover
