#pragma once

#include <algorithm>
#include <filesystem>

namespace drover {

/// Whether `path` is `folder` or in it. Compares them as written: make both canonical first.
inline bool lies_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

/// Whether an untrusted path stays below the folder that it is relative to: it is neither absolute nor goes
/// up. Links are followed wherever they lead, as the Hub's cache is made of them.
inline bool is_inner_path(const std::filesystem::path& path) {
    return !path.is_absolute() && std::find(path.begin(), path.end(), "..") == path.end();
}

/// The same for a path of one part.
inline bool is_inner_name(const std::filesystem::path& path) {
    return !path.empty() && path != "." && is_inner_path(path) && !path.has_parent_path();
}

}  // namespace drover
