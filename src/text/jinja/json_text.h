#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace drover::jinja {

/// The arguments of json.dumps that templates use.
struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent;  ///< of one level; nothing: on one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

/// json.dumps(value)
std::string json_text(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace drover::jinja
