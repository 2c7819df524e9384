#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

/// Numbers and values as Python writes them: in the files that Hugging Face's tools read, and in its log
/// lines.
namespace drover {

/// repr(float): the shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16
/// on; ".0" after whole numbers; inf, -inf, nan.
std::string python_float(double value);

/// round(value, digits): the decimal number nearest to the exact value of `value`.
double python_round(double value, int digits);

/// f"{value:.4g}" for `digits` = 4.
std::string python_general(double value, int digits);

/// repr(): None, True, quoted strings, [..], {'key': value}. Keys keep their order.
std::string python_repr(const Json& value);

/// str(datetime.timedelta(seconds=…)) with the given whole seconds: "0:01:05", "1 day, 2:03:04".
std::string python_timedelta(long long seconds);

/// json.dumps(value, indent=indent, sort_keys=True): Python's floats (NaN and Infinity as it writes them),
/// every character beyond ASCII escaped, no newline at the end.
std::string python_json(const Json& value, int indent);

/// parse_json for texts with Python's literals NaN, Infinity and -Infinity.
Json parse_python_json(std::string_view text, std::string_view where);

/// json.dumps(value): on one line, keys in their order.
std::string python_json_line(const Json& value);

}  // namespace drover
