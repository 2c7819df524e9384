#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace drover {

/// The whole file as bytes; Error when it cannot be read.
std::string read_text_file(const std::filesystem::path& path);

/// Writes beside `path`, flushes to disk, then renames over it: a reader sees the old file or the new one.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace drover
