#pragma once

namespace drover {

/// Chrome's traces count microseconds.
inline constexpr double trace_units_per_second = 1e6;

}  // namespace drover
