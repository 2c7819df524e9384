#pragma once

#include <cstdint>
#include <string_view>

namespace drover {

/// How the products of the blocks' matrices are computed (docs/design/fp8.md).
enum class Fp8Recipe : std::uint8_t {
    none,        ///< in the weights' own format
    tensorwise,  ///< operands in FP8, with one scale for each tensor, made of its present maximum
    blockwise,   ///< … with one for 128 neighbours of a row, and for 128 × 128 weights (QuantiseBlocks)
};

/// "none", "tensorwise" or "blockwise"; Error naming `what` otherwise.
Fp8Recipe fp8_recipe_from_name(std::string_view name, std::string_view what);

}  // namespace drover
