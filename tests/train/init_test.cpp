#include "model/init.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <numeric>

#include "backend/backend.h"
#include "model/params.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/single_mesh.h"
#include "train/train_engine.h"

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
                                           "odd_sizes", "appendix_a", "mixtral"),
                         [](const auto& model) { return std::string(model.param); });

TEST(InitParts, AnyRectangleOfALeafCanBeMadeAlone) {
    const ModelConfig config = ModelConfig::parse(
        R"({"vocab_size": 37, "hidden_size": 20, "intermediate_size": 33, "num_hidden_layers": 1, "num_attention_heads": 2,
            "pad_token_id": 5})",
        "x");
    const ParamSpec spec = make_param_spec(config);
    const HfInit init(config, spec, 7);
    for (const UnitSpec& unit : spec.units)
        for (const StorageSpec& storage : unit.storages)
            for (const LeafSpec& leaf : storage.leaves) {
                const std::int64_t rows = leaf.shape[0], columns = leaf.shape.numel() / rows;
                OwnedLeaf whole{.spec = &leaf, .row_count = rows, .column_count = columns};
                std::vector<float> all(static_cast<std::size_t>(rows * columns));
                init.fill(whole, all);
                OwnedLeaf part{.spec = &leaf,
                               .row_begin = rows / 3,
                               .row_count = rows / 2,
                               .column_begin = columns / 4,
                               .column_count = columns - columns / 4};
                std::vector<float> some(static_cast<std::size_t>(part.row_count * part.column_count));
                init.fill(part, some);
                for (std::int64_t r = 0; r < part.row_count; ++r)
                    for (std::int64_t c = 0; c < part.column_count; ++c)
                        ASSERT_EQ(some[static_cast<std::size_t>(r * part.column_count + c)],
                                  all[static_cast<std::size_t>((part.row_begin + r) * columns +
                                                               part.column_begin + c)])
                            << leaf.name;
            }
}

}  // namespace
}  // namespace drover
