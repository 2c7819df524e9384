#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"

namespace drover {

/// Parses `text`; `where` (a path or a flag) names the source in the error. Duplicate keys are errors.
Json parse_json(std::string_view text, std::string_view where);

/// Reads and parses a file.
Json read_json_file(const std::filesystem::path& path);

/// Keys sorted at every level, `indent` spaces, characters as they are: json.dump(sort_keys=True,
/// ensure_ascii=False). python_json() (python_json.h) is json.dump without ensure_ascii=False.
std::string sorted_json_text(const Json& value, int indent);

}  // namespace drover
