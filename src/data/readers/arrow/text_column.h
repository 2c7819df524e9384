#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <string>

#include "data/readers/arrow_module.h"

namespace drover::arrow_module {

/// Whether a column of this type can be read as text: strings of any layout, dictionaries of strings, and
/// columns that are all null.
bool is_text(const arrow::DataType& type);

/// Passes rows [begin, begin + count) of a text column to `sink`.
void give_text(const arrow::Array& column, std::int64_t begin, std::int64_t count, DroverArrowTextSink sink,
               void* context);

}  // namespace drover::arrow_module
