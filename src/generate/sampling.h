#pragma once

#include <cstdint>
#include <span>

namespace drover {

/// How the next token is chosen from its logits.
struct SamplingSettings {
    double temperature = 0;   ///< logits are divided by it; 0: always the likeliest token
    std::int64_t top_k = 0;   ///< keep only the k likeliest; 0: all
    double top_p = 1;         ///< keep only the likeliest with this combined probability
    std::uint64_t seed = 42;  ///< of the random numbers
};

/// Error, naming the flag, when a setting is invalid.
void check_sampling(const SamplingSettings& settings);

/// The token's id. The order is that of transformers: temperature, top k (ties with the last one are kept),
/// top p (at least one is kept). The random number is a function of (seed, step, sequence), so that a text
/// does not depend on what else is generated. When the likeliest token is requested, the lowest id wins a
/// tie.
std::int32_t choose_token(std::span<const float> logits, const SamplingSettings& settings, std::int64_t step,
                          std::int64_t sequence = 0);

}  // namespace drover
