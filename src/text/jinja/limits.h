#pragma once

#include <cstddef>

namespace drover::jinja {

/// What rendering a template may cost. A template is somebody's program: these make it end.
struct Limits {
    std::size_t steps = 50'000'000;            ///< expressions evaluated, and a share of the bytes copied
    std::size_t bytes = std::size_t{1} << 28;  ///< of all texts and lists made on the way
    std::size_t output = std::size_t{1} << 26;
    int depth = 1000;  ///< of calls, nested expressions and nested values together
};

}  // namespace drover::jinja
