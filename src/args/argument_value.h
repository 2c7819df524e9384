#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "args/argument.h"
#include "core/json.h"

namespace drover {

/// yes/true/t/y/1 and no/false/f/n/0, in any case.
std::optional<bool> boolean_from_word(std::string_view word);

/// The whole text as a number; absent if it is not a number, or not finite.
std::optional<double> number_from_text(std::string_view text);

/// The value that `text` gives `argument`: bool, int64, double, string, list of strings, or object. `where`
/// is what the user wrote, for errors. UsageError if the text does not suit the argument's type.
Json value_from_text(const Argument& argument, std::string_view text, std::string_view where);

/// The same for a value from a JSON file; not null.
Json value_from_json(const Argument& argument, const Json& value, std::string_view where);

/// The table's default; null if the argument is unset by default.
Json default_value(const Argument& argument);

/// Replaces "~" at the start by $HOME.
std::string with_home(std::string_view path);

}  // namespace drover
