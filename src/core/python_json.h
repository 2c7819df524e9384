#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

/// Values as Python writes them: in the files that Hugging Face's tools read, and in its log lines.
namespace drover {

/// repr(): None, True, quoted strings, [..], {'key': value}. Keys keep their order.
std::string python_repr(const Json& value);

/// json.dumps(value, indent=indent, sort_keys=True): Python's floats (NaN and Infinity as it writes them),
/// every character beyond ASCII escaped, no newline at the end.
std::string python_json(const Json& value, int indent);

/// parse_json for texts with Python's literals NaN, Infinity and -Infinity.
Json parse_python_json(std::string_view text, std::string_view where);

/// json.dumps(value): on one line, keys in their order.
std::string python_json_line(const Json& value);

}  // namespace drover
