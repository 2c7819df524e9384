#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

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
