#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace drover {

/// Which of a block's activations are dropped after forward and recomputed in backward. Gradients do not
/// change.
enum class Recompute : std::uint8_t {
    none,
    selective,      ///< norm outputs and the SwiGLU product: almost free
    selective_mlp,  ///< also gate‖up: one more matrix product
    /// Everything but the block's input, what attention gave, and the statistics of its softmax: the products
    /// once more, but not attention, which long rows are dominated by.
    selective_attention,
    full,  ///< everything but the block's input: one more forward pass
};

/// In the order of the policies: each keeps less than the one before, and computes more again.
inline constexpr std::array<std::string_view, 5> recompute_names = {"none", "selective", "selective_mlp",
                                                                    "selective_attention", "full"};

/// Whether all of a block runs again, from its input on, apart from what `selective_attention` keeps.
constexpr bool starts_at_input(Recompute policy) {
    return policy == Recompute::selective_attention || policy == Recompute::full;
}

/// The policy of a whole model: the first `blocks` blocks recompute as `kind` says, the others keep
/// everything.
struct RecomputePolicy {
    Recompute kind = Recompute::none;
    std::int64_t blocks = INT64_MAX;

    Recompute of_block(std::int64_t block) const { return block < blocks ? kind : Recompute::none; }
};

/// One of recompute_names; Error naming `what` otherwise.
Recompute recompute_from_name(std::string_view name, std::string_view what);

}  // namespace drover
