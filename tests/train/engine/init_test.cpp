#include "model/init.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <numeric>

#include "backend/backend.h"
#include "model/params.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

class Init : public ::testing::TestWithParam<const char*> {};

TEST_P(Init, WeightsFromScratchAreTransformers) {
    const SafetensorsFile golden(test::golden_path(std::string("init/") + GetParam() + ".safetensors"));
    const ModelConfig config = ModelConfig::parse(golden.header().metadata.at("config"), GetParam());
    const auto backend = test::make_test_backend();
    TrainEngine engine(config, {}, *backend, test::single_mesh());
    engine.allocate();
    engine.initialize_weights(std::stoull(golden.header().metadata.at("seed")));
    EXPECT_EQ(engine.store().owned().size(), golden.header().entries.size());
    for (const OwnedLeaf& leaf : engine.store().owned()) {
        const auto ours = test::values(leaf.param), theirs = test::values(golden.tensor(leaf.spec->name));
        ASSERT_EQ(ours.size(), theirs.size());
        for (std::size_t i = 0; i < ours.size(); ++i)
            ASSERT_NEAR(ours[i], theirs[i], 1e-6 * config.initializer_range) << leaf.spec->name << " " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Init,
                         ::testing::Values("mha", "gqa", "tied", "biases", "odd_head_dim", "padding_row",
                                           "odd_sizes", "one_layer", "mixtral", "mistral", "qwen2", "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

class InitParts : public ::testing::TestWithParam<InitKind> {
  protected:
    void fill(const OwnedLeaf& leaf, std::span<float> out) const {
        if (GetParam() == InitKind::hugging_face)
            HfInit(config_, spec_, 7).fill(leaf, out);
        else
            fill_by_counter(leaf, 7, config_.initializer_range, out);
    }

    const ModelConfig config_ = ModelConfig::parse(
        R"({"vocab_size": 37, "hidden_size": 20, "intermediate_size": 33, "num_hidden_layers": 1, "num_attention_heads": 2,
            "pad_token_id": 5})",
        "x");
    const ParamSpec spec_ = make_param_spec(config_);
};

TEST_P(InitParts, AnyRectangleOfALeafCanBeMadeAlone) {
    spec_.for_each_leaf([&](const LeafSpec& leaf) {
        const std::int64_t rows = leaf.shape[0], columns = leaf.shape.numel() / rows;
        OwnedLeaf whole{.spec = &leaf, .row_count = rows, .column_count = columns};
        std::vector<float> all(static_cast<std::size_t>(rows * columns));
        fill(whole, all);
        OwnedLeaf part{.spec = &leaf,
                       .row_begin = rows / 3,
                       .row_count = rows / 2,
                       .column_begin = columns / 4,
                       .column_count = columns - columns / 4};
        std::vector<float> some(static_cast<std::size_t>(part.row_count * part.column_count));
        fill(part, some);
        for (std::int64_t r = 0; r < part.row_count; ++r)
            for (std::int64_t c = 0; c < part.column_count; ++c)
                ASSERT_EQ(
                    some[static_cast<std::size_t>(r * part.column_count + c)],
                    all[static_cast<std::size_t>((part.row_begin + r) * columns + part.column_begin + c)])
                    << leaf.name;
    });
}

INSTANTIATE_TEST_SUITE_P(Kinds, InitParts, ::testing::Values(InitKind::hugging_face, InitKind::counter));

TEST(CounterInit, HasTheDistributionOfHuggingFaces) {
    const ModelConfig config = ModelConfig::parse(
        R"({"vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "pad_token_id": 5, "initializer_range": 0.03})",
        "x");
    const auto backend = test::make_test_backend();
    TrainEngineOptions options;
    options.init = InitKind::counter;
    TrainEngine engine(config, options, *backend, test::single_mesh());
    engine.allocate();
    engine.initialize_weights(3);
    std::vector<std::vector<double>> matrices;
    for (const OwnedLeaf& leaf : engine.store().owned()) {
        const std::vector<double> weights = test::values(leaf.param);
        if (leaf.spec->shape.rank() == 1) {
            EXPECT_EQ(weights, std::vector<double>(weights.size(), 1.0)) << leaf.spec->name;
            continue;
        }
        double sum = 0, squares = 0;
        for (const double weight : weights) sum += weight, squares += weight * weight;
        const auto count = static_cast<double>(weights.size());
        EXPECT_NEAR(sum / count, 0, 5 * 0.03 / std::sqrt(count)) << leaf.spec->name;
        EXPECT_NEAR(std::sqrt(squares / count) / 0.03, 1, 0.05) << leaf.spec->name;
        for (const auto& other : matrices) EXPECT_NE(weights[0], other[0]) << leaf.spec->name;
        matrices.push_back(weights);
        if (leaf.spec->name == "model.embed_tokens.weight") {
            EXPECT_EQ(std::vector<double>(weights.begin() + 5 * 64, weights.begin() + 6 * 64),
                      std::vector<double>(64, 0.0));
        }
    }
}

}  // namespace
}  // namespace drover
