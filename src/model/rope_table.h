#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace drover {

struct ModelConfig;

/// Frequencies of a rope configuration for sequences of a given length.
struct RopeFrequencies {
    std::vector<float> inverse;  ///< [D/2]: angle per position
    float attention_factor = 1;  ///< cosines and sines are multiplied by it
};

/// Frequencies as transformers computes them, in fp32. `sequence_length` matters only for the dynamic type.
RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t sequence_length);

/// cos and sin of every (position, frequency), rounded to `rounding` (the dtype of the hidden states) as
/// transformers does, and kept as floats.
struct RopeTable {
    std::vector<float> cosine;  ///< [P,D/2]
    std::vector<float> sine;    ///< [P,D/2]
};
RopeTable rope_table(const ModelConfig& config, std::int64_t positions, DType rounding);

}  // namespace drover
