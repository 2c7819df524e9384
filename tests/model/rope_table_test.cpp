#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/json_text.h"
#include "model/config.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(RopeTable, FrequenciesOfTransformers) {
    const Json golden = read_json_file(test::golden_path("rope.json"));
    int checked = 0;
    for (const Json& test_case : golden.at("cases")) {
        const ModelConfig config = ModelConfig::parse(test_case.at("config").dump(), "golden");
        const Json& length = test_case.at("sequence_length");
        const RopeFrequencies rope =
            rope_frequencies(config, length.is_null() ? 1 : length.get<std::int64_t>());
        const std::vector<float> expected = test_case.at("inv_freq");
        ASSERT_EQ(rope.inverse.size(), expected.size()) << test_case.at("name");
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(rope.inverse[i], expected[i], expected[i] * 1e-6) << test_case.at("name") << " " << i;
        EXPECT_NEAR(rope.attention_factor, test_case.at("attention_factor").get<double>(), 1e-6)
            << test_case.at("name");
        ++checked;
    }
    EXPECT_GE(checked, 10);
}

/// The frequencies of a model with YaRN, from its formula: frequency i is kept with weight 1 − ramp and
/// divided by the factor with weight ramp, which grows from 0 at `low` to 1 at `high`.
void expect_yarn(const char* config, const std::vector<double>& plain, double factor, double low,
                 double high) {
    const RopeFrequencies rope = rope_frequencies(ModelConfig::parse(config, "x"), 1);
    ASSERT_EQ(rope.inverse.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        EXPECT_NEAR(rope.inverse[i], plain[i] * (1 - ramp) + plain[i] / factor * ramp, 1e-6) << i;
    }
}

TEST(RopeTable, YarnsRampStaysWithinTheHead) {
    // 16 · ln(128 / 64π) / (2 · ln 10000) is −0.4, which is clamped to 0; 16 · ln(128 / 2π) / … is 2.6.
    expect_yarn(R"({"head_dim": 16, "rope_theta": 10000.0, "max_position_embeddings": 512, "rope_scaling":
                    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}})",
                {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}, 4, 0, 3);
    // 4 · ln(100000 / 2π) / (2 · ln 100) is 4.2, which is clamped to 3; 4 · ln(100000 / 10000π) / … is 0.5.
    expect_yarn(R"({"head_dim": 4, "rope_theta": 100.0, "max_position_embeddings": 400000, "rope_scaling":
                    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100000,
                     "beta_fast": 5000.0}})",
                {1, 0.1}, 4, 0, 3);
}

TEST(RopeTable, RoundedToTheHiddenStatesDtype) {
    const ModelConfig config = ModelConfig::parse(R"({"head_dim": 8})", "x");
    const RopeTable exact = rope_table(config, 5, DType::f32);
    const RopeTable coarse = rope_table(config, 5, DType::bf16);
    ASSERT_EQ(exact.cosine.size(), 5u * 4u);
    EXPECT_FLOAT_EQ(exact.cosine[4], std::cos(1.0f));
    EXPECT_FLOAT_EQ(exact.sine[4 * 4 + 1], std::sin(0.4f));
    for (std::size_t i = 0; i < exact.cosine.size(); ++i)
        EXPECT_EQ(coarse.cosine[i], static_cast<float>(bf16(exact.cosine[i])));
}

}  // namespace
}  // namespace drover
