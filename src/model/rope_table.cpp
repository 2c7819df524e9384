#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "model/config.h"

namespace drover {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

/// θ^(−2i/d), rounded to fp32 where transformers' tensor expression rounds.
std::vector<float> plain_frequencies(double theta, std::int64_t head_dim) {
    std::vector<float> inverse(static_cast<std::size_t>(head_dim / 2));
    for (std::size_t i = 0; i < inverse.size(); ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
        inverse[i] = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    }
    return inverse;
}

/// Long wavelengths are stretched by the factor, short ones kept, those between are blended.
void apply_llama3(const RopeConfig& rope, std::vector<float>& inverse) {
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    const double longest = original / rope.low_frequency_factor;
    const double shortest = original / rope.high_frequency_factor;
    for (float& frequency : inverse) {
        const double wavelength = two_pi / static_cast<double>(frequency);
        if (wavelength < shortest) continue;
        const double stretched = static_cast<double>(frequency) / rope.factor;
        if (wavelength > longest) {
            frequency = static_cast<float>(stretched);
            continue;
        }
        const double smooth = (original / wavelength - rope.low_frequency_factor) /
                              (rope.high_frequency_factor - rope.low_frequency_factor);
        frequency = static_cast<float>((1 - smooth) * stretched + smooth * static_cast<double>(frequency));
    }
}

/// The (fractional) frequency index that makes `rotations` full turns over the original length.
double yarn_dimension(const RopeConfig& rope, std::int64_t head_dim, double original, double rotations) {
    return static_cast<double>(head_dim) * std::log(original / (rotations * two_pi)) /
           (2 * std::log(rope.theta));
}

void apply_yarn(const RopeConfig& rope, std::int64_t head_dim, double original, std::vector<float>& inverse) {
    double low = yarn_dimension(rope, head_dim, original, rope.beta_fast);
    double high = yarn_dimension(rope, head_dim, original, rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(head_dim - 1));
    if (low == high) high += 0.001;
    for (std::size_t i = 0; i < inverse.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        const double kept = static_cast<double>(inverse[i]);
        inverse[i] = static_cast<float>(kept / rope.factor * ramp + kept * (1 - ramp));
    }
}

double yarn_magnitude(double scale, double mscale) {
    return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
    if (rope.attention_factor > 0) return rope.attention_factor;
    if (rope.mscale != 0 && rope.mscale_all_dim != 0)
        return yarn_magnitude(rope.factor, rope.mscale) / yarn_magnitude(rope.factor, rope.mscale_all_dim);
    return yarn_magnitude(rope.factor, 1);
}

float rounded(float value, DType dtype) {
    switch (dtype) {
        case DType::f32:
            return value;
        case DType::bf16:
            return static_cast<float>(bf16(value));
        case DType::f16:
            return static_cast<float>(f16(value));
        default:
            bug("rope tables are rounded to a floating type of the engine");
    }
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t sequence_length) {
    const RopeConfig& rope = config.rope;
    RopeFrequencies result;
    switch (rope.type) {
        case RopeConfig::Type::plain:
            result.inverse = plain_frequencies(rope.theta, config.head_dim);
            break;
        case RopeConfig::Type::linear:
            result.inverse = plain_frequencies(rope.theta, config.head_dim);
            for (float& frequency : result.inverse) frequency /= static_cast<float>(rope.factor);
            break;
        case RopeConfig::Type::dynamic: {
            const auto trained = static_cast<double>(config.max_position_embeddings);
            const double length = std::max(static_cast<double>(sequence_length), trained);
            const auto dimension = static_cast<double>(config.head_dim);
            const double theta = rope.theta * std::pow(rope.factor * length / trained - (rope.factor - 1),
                                                       dimension / (dimension - 2));
            result.inverse = plain_frequencies(theta, config.head_dim);
            break;
        }
        case RopeConfig::Type::llama3:
            result.inverse = plain_frequencies(rope.theta, config.head_dim);
            apply_llama3(rope, result.inverse);
            break;
        case RopeConfig::Type::yarn: {
            const std::int64_t original = rope.original_max_position_embeddings > 0
                                              ? rope.original_max_position_embeddings
                                              : config.max_position_embeddings;
            result.inverse = plain_frequencies(rope.theta, config.head_dim);
            apply_yarn(rope, config.head_dim, static_cast<double>(original), result.inverse);
            result.attention_factor = static_cast<float>(yarn_attention_factor(rope));
            break;
        }
    }
    return result;
}

RopeTable rope_table(const ModelConfig& config, std::int64_t positions, DType rounding) {
    const RopeFrequencies frequencies = rope_frequencies(config, positions);
    RopeTable table;
    table.cosine.reserve(static_cast<std::size_t>(positions) * frequencies.inverse.size());
    table.sine.reserve(table.cosine.capacity());
    for (std::int64_t position = 0; position < positions; ++position) {
        for (const float frequency : frequencies.inverse) {
            const float angle = static_cast<float>(position) * frequency;
            table.cosine.push_back(rounded(std::cos(angle) * frequencies.attention_factor, rounding));
            table.sine.push_back(rounded(std::sin(angle) * frequencies.attention_factor, rounding));
        }
    }
    return table;
}

}  // namespace drover
