#pragma once

#include <cstdint>

namespace drover {

/// Differences between Hugging Face releases that change numbers. The default is transformers 5.x; `v4_43()`
/// is what the older golden runs were made with.
struct HfCompat {
    /// The divisor of an optimizer step's summed cross-entropy.
    enum class LossDenominator : std::uint8_t {
        target_tokens,  ///< labels ≠ −100 that have a prediction (5.11+): the true mean
        all_labels,  ///< labels ≠ −100 over all positions (4.46.2 … 4.57): (T−1)/T of the true mean
        mean_of_micro_batches,  ///< mean per micro-batch, then mean over micro-batches (≤ 4.45)
    };
    LossDenominator loss_denominator = LossDenominator::target_tokens;

    /// Mixtral's norm weights take weight decay (≤ 4.45 excluded norms by class, and Mixtral's was not
    /// listed).
    bool mixtral_norms_decayed = false;
    /// Mixtral's experts are drawn as fused 3-D tensors, without constructor draws (5.x), or as Linear
    /// layers.
    bool mixtral_experts_fused = true;
    /// The format of weights when none is requested.
    enum class UnsetDtype : std::uint8_t {
        as_stored,            ///< what config.json says (5.x)
        float32_when_loaded,  ///< of loaded weights float32, of new ones what config.json says (4.49 … 4.57)
        float32,              ///< always (≤ 4.48)
    };
    UnsetDtype unset_dtype = UnsetDtype::as_stored;

    static HfCompat v4_57() {
        return {.loss_denominator = LossDenominator::all_labels,
                .mixtral_experts_fused = false,
                .unset_dtype = UnsetDtype::float32_when_loaded};
    }
    static HfCompat v4_43() {
        return {.loss_denominator = LossDenominator::mean_of_micro_batches,
                .mixtral_norms_decayed = true,
                .mixtral_experts_fused = false,
                .unset_dtype = UnsetDtype::float32};
    }
};

}  // namespace drover
