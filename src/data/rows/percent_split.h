#pragma once

#include <cstdint>

namespace drover {

/// Where `train[:p%]` ends and `train[p%:]` begins: percent · rows / 100 as a double, rounded half to even,
/// as Python's round does it.
std::int64_t percent_boundary(std::int64_t rows, int percent);

}  // namespace drover
