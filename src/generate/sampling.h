#pragma once

#include <cstdint>
#include <span>

namespace drover {

/// How the next token is chosen from its logits.
struct SamplingSettings {
    double temperature = 0;   ///< logits are divided by it; 0: always the likeliest token
    std::int64_t top_k = 0;   ///< only the k likeliest; 0: all
    double top_p = 1;         ///< only the likeliest that together have this probability
    std::uint64_t seed = 42;  ///< of the random numbers
};

/// Error, naming the flag, when a setting is invalid.
void check_sampling(const SamplingSettings& settings);

/// The token's id. The order is that of transformers: temperature, top k (ties of the last one stay), top p
/// (at least one stays). The random number is a function of (seed, step, sequence), so that a text does not
/// depend on what else is generated. The lowest id wins a tie when the likeliest token is asked for.
std::int32_t choose_token(std::span<const float> logits, const SamplingSettings& settings, std::int64_t step,
                          std::int64_t sequence = 0);

}  // namespace drover
