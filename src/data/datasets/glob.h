#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Whether `name` (without "/") matches: "*" is any characters, "?" one, "[a-z]" one of a set, "[!a-z]" one
/// that is not.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Whether a path is a pattern: it has one of "*", "?" and "[".
bool is_pattern(std::string_view path);

/// The files below `base` that match a pattern, sorted. "**" as a whole name stands for any number of
/// folders, and at the end for every file below. Names that begin with ".", and folders that begin with "__",
/// match only patterns that begin so too. A path without a pattern is that file, if it is there. Error for a
/// "[" that is never closed.
std::vector<std::filesystem::path> glob_files(const std::filesystem::path& base, std::string_view pattern);

}  // namespace drover
