#include "data/rows/percent_split.h"

#include <cmath>

namespace drover {

std::int64_t percent_boundary(std::int64_t rows, int percent) {
    // nearbyint rounds half to even in the default rounding mode. The order of operations is that of the
    // datasets library: percent · rows is exact, so there is one rounding, in the division.
    return static_cast<std::int64_t>(
        std::nearbyint(static_cast<double>(percent) * static_cast<double>(rows) / 100.0));
}

}  // namespace drover
