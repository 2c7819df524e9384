#include <gtest/gtest.h>

#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// A checkpoint in tests/golden/earlier_checkpoint, and the settings of its run.
struct EarlierState {
    const char* name;
    const char* optimizer;
    Precision precision;
};

std::ostream& operator<<(std::ostream& out, const EarlierState& state) {
    return out << state.name;
}

class EarlierCheckpoint : public testing::TestWithParam<EarlierState> {};

/// Saved again before the next step, weights, optimizer and counters are the bytes that were read.
TEST_P(EarlierCheckpoint, IsTakenAsItIs) {
    const fs::path earlier = test::golden_path("earlier_checkpoint") / GetParam().name / "checkpoint-3";
    const ModelConfig config = ModelConfig::from_path(earlier);
    const auto backend = test::make_test_backend();
    TrainEngine engine(
        config,
        {.model = {.precision = GetParam().precision, .recompute = {}, .rows = 2, .row_length = 32},
         .optimizer = OptimizerSettings::named(GetParam().optimizer, 0.1)},
        *backend, test::single_mesh());
    engine.allocate();
    engine.initialize_weights(1);
    const CheckpointManifest expected = CheckpointManifest::read(earlier);
    EngineModel model(engine, config, *backend, test::single_mesh(), {},
                      {.facts = RunFacts::from(expected.state)});

    const std::optional<LoopState> loop = model.resume(earlier);
    ASSERT_TRUE(loop);
    const test::TemporaryFolder folder;
    const fs::path again = folder / "checkpoint-3";
    model.save_checkpoint(
        {.folder = again, .trainer_state = read_text_file(earlier / "trainer_state.json"), .loop = *loop});
    const std::optional<CheckpointOutcome> outcome = model.checkpoint_outcome(true);
    ASSERT_TRUE(outcome);
    ASSERT_EQ(outcome->error, "");
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        EXPECT_TRUE(read_text_file(again / file) == read_text_file(earlier / file)) << file << " differs";
    EXPECT_EQ(CheckpointManifest::read(again).state, expected.state);
}

INSTANTIATE_TEST_SUITE_P(Golden, EarlierCheckpoint,
                         testing::Values(EarlierState{"adamw", "adamw_torch", Precision::fp32()},
                                         EarlierState{"adafactor_bf16", "adafactor",
                                                      Precision::with_master(DType::bf16)},
                                         EarlierState{"adamw_fsdp", "adamw_torch", Precision::fp32()}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace drover
