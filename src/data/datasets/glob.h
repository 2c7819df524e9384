#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Whether `name` (without "/") matches: "*" matches any characters, "?" one, "[a-z]" one of a set, "[!a-z]"
/// one that is not.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Whether a path is a pattern, that is, contains "*", "?" or "[".
bool is_pattern(std::string_view path);

/// The files below `base` that match a pattern, sorted. "**" as a path component matches any number of
/// folders, and at the end every file below. Names that begin with ".", and folders that begin with "__",
/// match only patterns that begin the same way. A path without a pattern yields that file, if it exists.
/// Error for an unclosed "[".
std::vector<std::filesystem::path> glob_files(const std::filesystem::path& base, std::string_view pattern);

}  // namespace drover
