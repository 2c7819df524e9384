#pragma once

#include <cstdint>
#include <vector>

namespace drover {

/// numpy.random.default_rng(seed).permutation(count), number by number.
std::vector<std::int64_t> numpy_permutation(std::int64_t count, std::uint64_t seed);

}  // namespace drover
