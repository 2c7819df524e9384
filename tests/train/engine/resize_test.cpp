#include <gtest/gtest.h>

#include "core/json_text.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/added_rows.h"
#include "train/engine/engine_model.h"
#include "train/golden_step.h"

// A tokenizer with more tokens than the model has rows.

namespace drover {
namespace {

class Resize : public ::testing::Test {
  protected:
    Resize() : file_(test::golden_path("resize.safetensors")) {
        seed_ = std::stoull(file_.header().metadata.at("seed"));
        tokens_ = std::stoll(file_.header().metadata.at("tokens"));
    }

    std::unique_ptr<TrainEngine> resized(ModelConfig config) {
        config.resize_vocabulary(tokens_);
        return plain(config);
    }

    std::unique_ptr<TrainEngine> plain(const ModelConfig& config) {
        auto engine = std::make_unique<TrainEngine>(
            config,
            TrainEngineOptions{
                .model = {.precision = Precision::fp32(), .recompute = {}, .rows = 1, .row_length = 8},
                .max_gradient_norm = 1,
                .compat = {}},
            *backend_, test::single_mesh());
        engine->allocate();
        return engine;
    }

    /// The old rows are unchanged, and the added ones are transformers'.
    void expect_rows(const TrainEngine& engine, const TrainEngine& before, const std::string& name) {
        for (std::size_t i = 0; i < engine.store().owned().size(); ++i) {
            const OwnedLeaf& leaf = engine.store().owned()[i];
            const Tensor old = before.store().owned()[i].param;
            const bool is_head = leaf.spec->name == "lm_head.weight";
            if (!is_head && leaf.spec->name != "model.embed_tokens.weight") {
                EXPECT_EQ(test::values(leaf.param), test::values(old)) << leaf.spec->name;
                continue;
            }
            ASSERT_EQ(leaf.param.size(0), tokens_);
            EXPECT_EQ(test::values(leaf.param.rows(0, old.size(0))), test::values(old)) << leaf.spec->name;
            const auto added = test::values(leaf.param.rows(old.size(0), tokens_ - old.size(0)));
            const auto expected = test::values(file_.tensor(name + (is_head ? ".head" : ".embedding")));
            ASSERT_EQ(added.size(), expected.size());
            // The noise is up to 1e-6 … 1e-5, so this sees it.
            for (std::size_t j = 0; j < added.size(); ++j)
                EXPECT_NEAR(added[j], expected[j], 3e-8) << name << " " << j;
        }
    }

    SafetensorsFile file_;
    std::uint64_t seed_ = 0;
    std::int64_t tokens_ = 0;
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

TEST_F(Resize, OfAModelFromScratch) {
    const Json configs = parse_json(file_.header().metadata.at("configs"), "configs");
    for (const char* name : {"scratch", "few_rows", "tied"}) {
        const ModelConfig config = ModelConfig::parse(configs.at(name).dump(), name);
        const auto before = plain(config), engine = resized(config);
        before->initialize_weights(seed_);
        engine->initialize_weights(seed_);
        expect_rows(*engine, *before, name);
    }
}

TEST_F(Resize, OfALoadedModel) {
    const auto folder = test::golden_path("hf/llama-single");
    const ModelConfig config = ModelConfig::from_path(folder);
    const auto before = plain(config), engine = resized(config);
    before->load_weights(folder, seed_);
    EXPECT_EQ(engine->load_weights(folder, seed_).text(), "");
    expect_rows(*engine, *before, "loaded");

    // Saved and loaded again, it is a model of that size.
    const test::TemporaryFolder saved;
    EngineModel(*engine, config, *backend_, test::single_mesh()).save(saved.path());
    const ModelConfig again = ModelConfig::from_path(saved.path());
    EXPECT_EQ(again.vocab_size, tokens_);
    const auto loaded = plain(again);
    EXPECT_EQ(loaded->load_weights(saved.path(), 0).text(), "");
    EXPECT_EQ(test::values(loaded->store().owned()[0].param), test::values(engine->store().owned()[0].param));
}

TEST(AddedRows, HaveTheMeanAndAThousandMillionthOfTheCovariance) {
    constexpr std::int64_t columns = 3, rows = 400, added = 20000;
    std::vector<float> old(columns * rows);
    TorchRng(1).fill_normal(old, 0.0, 1.0);
    // The second column depends on the first.
    for (std::size_t i = 0; i < old.size(); i += columns) old[i + 1] = 2 * old[i] + 0.5f * old[i + 1] + 3;
    const auto moments = [](std::span<const float> x, std::span<const float> around) {
        std::vector<double> products(columns * columns, 0.0);
        for (std::size_t i = 0; i < x.size(); i += columns)
            for (std::size_t a = 0; a < columns; ++a)
                for (std::size_t b = 0; b < columns; ++b)
                    products[a * columns + b] +=
                        (static_cast<double>(x[i + a]) - static_cast<double>(around[a])) *
                        (static_cast<double>(x[i + b]) - static_cast<double>(around[b]));
        for (double& product : products)
            product *= static_cast<double>(columns) / static_cast<double>(x.size());
        return products;
    };
    std::vector<float> mean(columns, 0.0f);
    for (std::size_t i = 0; i < old.size(); ++i) mean[i % columns] += old[i] / static_cast<float>(rows);
    TorchRng generator(2);
    const std::vector<float> drawn = draw_added_rows(old, columns, added, generator);
    const std::vector<double> of_old = moments(old, mean), of_drawn = moments(drawn, mean);
    for (std::size_t i = 0; i < of_old.size(); ++i) EXPECT_NEAR(of_drawn[i] * 1e9, of_old[i], 0.15) << i;
}

}  // namespace
}  // namespace drover
