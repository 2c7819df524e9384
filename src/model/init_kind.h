#pragma once

#include <cstdint>
#include <string_view>

namespace drover {

/// The source of the random numbers of new weights.
enum class InitKind : std::uint8_t {
    hugging_face,  ///< PyTorch's generator, drawn from as transformers does: its weights for the seed
    counter,       ///< every element a function of (seed, leaf, its place): the same distribution, faster
};

/// "hf" or "counter"; Error naming `what` otherwise.
InitKind init_kind_from_name(std::string_view name, std::string_view what);

}  // namespace drover
