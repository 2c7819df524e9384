#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace drover {

/// Converts `count` packed elements between floating types on the host (f64 included), rounding to nearest
/// even. Serial, so that callers can cut the work as they like.
void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count);

}  // namespace drover
