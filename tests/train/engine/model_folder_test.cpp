#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

std::unique_ptr<TrainEngine> engine_for(const ModelConfig& config, Backend& backend,
                                        const Precision& precision, std::int64_t rows,
                                        std::int64_t row_length) {
    auto engine = std::make_unique<TrainEngine>(
        config,
        TrainEngineOptions{
            .model = {.precision = precision, .recompute = {}, .rows = rows, .row_length = row_length},
            .max_gradient_norm = 1,
            .compat = {}},
        backend, test::single_mesh());
    engine->allocate();
    return engine;
}

class HfFolder : public ::testing::TestWithParam<const char*> {};

/// A folder saved by transformers gives transformers' loss here, and again after we saved it.
TEST_P(HfFolder, LoadsAndSavesAsTransformersDoes) {
    const auto folder = test::golden_path(std::string("hf/") + GetParam());
    const ModelConfig config = ModelConfig::from_path(folder);
    const SafetensorsFile expected(folder / "expected.safetensors");
    const Tensor ids = expected.tensor("input_ids"), logits = expected.tensor("logits");  // [B,T], [B,T,V]
    const std::vector<std::int32_t> id_values(ids.data<std::int32_t>(),
                                              ids.data<std::int32_t>() + ids.numel());
    const Batch batch = Batch::full_rows(ids.size(0), ids.size(1), id_values, id_values);

    const std::vector<std::int32_t> targets = batch.targets();
    double expected_loss = 0;
    for (std::int64_t i = 0; i < batch.tokens(); ++i) {
        const std::int32_t target = targets[static_cast<std::size_t>(i)];
        if (target == no_label) continue;
        const float* row = logits.data<float>() + i * logits.size(2);
        double sum = 0;
        for (std::int64_t v = 0; v < logits.size(2); ++v) sum += std::exp(static_cast<double>(row[v]));
        expected_loss += std::log(sum) - static_cast<double>(row[target]);
    }

    const bool is_bf16 = config.dtype == DType::bf16;
    const Precision precision = is_bf16 ? Precision::pure_bf16() : Precision::fp32();
    const auto backend = test::make_test_backend();
    const auto loaded = engine_for(config, *backend, precision, ids.size(0), ids.size(1));
    const LoadReport report = loaded->load_weights(folder, 0);
    EXPECT_EQ(report.text(), "");
    const double loss = loaded->evaluate(batch).loss_sum;
    EXPECT_NEAR(loss, expected_loss, expected_loss * (is_bf16 ? 2e-3 : 1e-6));

    const test::TemporaryFolder saved;
    EngineModel(*loaded, config, *backend, test::single_mesh()).save(saved.path());
    const auto again =
        engine_for(ModelConfig::from_path(saved.path()), *backend, precision, ids.size(0), ids.size(1));
    EXPECT_EQ(again->load_weights(saved.path(), 0).text(), "");
    EXPECT_EQ(again->evaluate(batch).loss_sum, loss);
}

INSTANTIATE_TEST_SUITE_P(Models, HfFolder,
                         ::testing::Values("llama-single", "llama-sharded", "llama-tied", "mixtral-published",
                                           "mixtral-fused", "llama-tied-bin", "llama-sharded-bin"),
                         [](const auto& folder) {
                             std::string name = folder.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(HfFolderLoading, Bf16FileIntoFp32Model) {
    const auto folder = test::golden_path("hf/llama-sharded");
    const auto backend = test::make_test_backend();
    const auto engine = engine_for(ModelConfig::from_path(folder), *backend, Precision::fp32(), 1, 8);
    engine->load_weights(folder, 0);
    const ModelWeights weights(folder);
    for (const OwnedLeaf& leaf : engine->store().owned())
        EXPECT_EQ(test::values(leaf.param), test::values(weights.find(leaf.spec->name))) << leaf.spec->name;
}

TEST(HfFolderLoading, MissingTensorsAreDrawnAndNamed) {
    const auto backend = test::make_test_backend();
    const auto source = test::golden_path("hf/llama-tied");
    ModelConfig config = ModelConfig::from_path(source);
    config.tie_word_embeddings = false;  // now lm_head.weight is expected
    const auto engine = engine_for(config, *backend, Precision::fp32(), 1, 8);
    const LoadReport report = engine->load_weights(source, 3);
    EXPECT_EQ(report.missing, std::vector<std::string>{"lm_head.weight"});
    EXPECT_NE(report.text().find("lm_head.weight"), std::string::npos);

    const auto scratch = engine_for(config, *backend, Precision::fp32(), 1, 8);
    scratch->initialize_weights(3);
    EXPECT_EQ(test::values(engine->store().owned().back().param),
              test::values(scratch->store().owned().back().param));
}

TEST(HfFolderLoading, OtherShapesAreRefusedByName) {
    const auto backend = test::make_test_backend();
    const auto source = test::golden_path("hf/llama-single");
    ModelConfig config = ModelConfig::from_path(source);
    config.intermediate_size += 8;
    const auto engine = engine_for(config, *backend, Precision::fp32(), 1, 8);
    test::expect_error([&] { engine->load_weights(source, 0); }, {"model.layers.0.mlp.gate_proj.weight"});
}

}  // namespace
}  // namespace drover
