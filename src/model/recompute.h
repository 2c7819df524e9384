#pragma once

#include <cstdint>
#include <string_view>

namespace drover {

/// Which of a block's activations are dropped after forward and recomputed in backward. Gradients do not
/// change.
enum class Recompute : std::uint8_t {
    none,
    selective,      ///< norm outputs and the SwiGLU product: almost free
    selective_mlp,  ///< also gate‖up: one more matrix product
    full,           ///< everything but the block's input: one more forward pass
};

/// The policy of a whole model: the first `blocks` blocks recompute as `kind` says, the others keep
/// everything.
struct RecomputePolicy {
    Recompute kind = Recompute::none;
    std::int64_t blocks = INT64_MAX;

    Recompute of_block(std::int64_t block) const { return block < blocks ? kind : Recompute::none; }
};

/// "none", "selective", "selective_mlp" or "full"; Error naming `what` otherwise.
Recompute recompute_from_name(std::string_view name, std::string_view what);

}  // namespace drover
