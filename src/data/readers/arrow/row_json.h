#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace drover::arrow_module {

/// Appends a string in quotes.
void append_json(std::string_view text, std::string& json);

/// Appends the value of a row as JSON: lists and structs of any depth, strings, numbers, booleans, null.
/// Dates and the like are strings. std::runtime_error for bytes.
void append_json(const arrow::Array& column, std::int64_t row, std::string& json);

}  // namespace drover::arrow_module
