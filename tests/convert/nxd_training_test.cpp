#include "convert/nxd_training.h"

#include <gtest/gtest.h>

#include "convert/checkpoints.h"
#include "convert/conversion_writer.h"
#include "model/config.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Elements of planned tensors by name, with types and shapes.
std::map<std::string, std::string> elements_of(const std::vector<PlannedTensor>& tensors,
                                               const TensorSource& source) {
    test::TemporaryFolder folder;
    ConversionPlan plan;
    plan.files.push_back(safetensors_file("tensors.safetensors", tensors));
    write_conversion(plan, source, folder.path(), {}, {});
    const SafetensorsFile written(folder / "tensors.safetensors");
    std::map<std::string, std::string> elements;
    for (const SafetensorsEntry& entry : written.header().entries) {
        const Tensor tensor = written.tensor(entry.name);
        elements[entry.name] = std::string(name_of(tensor.dtype())) + " " + Json(entry.shape).dump() +
                               std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
    }
    return elements;
}

struct Cut {
    std::string golden;
    NxdSettings settings;
    NxdRun run;
};

class NxdTraining : public ::testing::TestWithParam<int> {};

/// Model and states of a golden, cut for another mesh in another form, are read back with the same bits.
TEST_P(NxdTraining, IsReadBackFromAnyMesh) {
    const auto cut = [](int number) -> Cut {
        switch (number) {
            case 0:  // fused, with repeated heads and more data ranks than some tensors have rows
                return {"zero1",
                        {.sizes = {.tensor = 2, .pipeline = 1},
                         .qkv_linear = true,
                         .fuse_qkv = true,
                         .kv_multiplier = 2,
                         .xser = true},
                        {.step = 4, .data_ranks = 5, .rounded = DType::bf16}};
            case 1:
                return {"zero1", {.sizes = {.tensor = 1, .pipeline = 2}}, {.step = 4, .data_ranks = 1}};
            case 2:
                return {"whole", {.sizes = {.tensor = 2, .pipeline = 2}}, {.step = 4, .data_ranks = 0}};
            default:
                return {"mixtral_xser", {.sizes = {.tensor = 2}}, {.step = 4, .data_ranks = 3}};
        }
    }(GetParam());
    const fs::path golden = test::golden_path("nxd_runs/" + cut.golden);
    const Json facts = read_json_file(golden / "case.json");
    const ModelConfig config =
        ModelConfig::from_path(test::golden_path("trainer_checkpoint/" + facts.at("run").get<std::string>()) /
                               "checkpoint-4" / "config.json");
    const auto open = [&](const fs::path& step, std::int64_t multiplier) {
        return open_nxd_training(step, "model", {.kv_multiplier = multiplier, .config = config}, std::nullopt,
                                 std::nullopt);
    };
    const TrainingCheckpoint before =
        open(golden / "step_4", facts.value("kv_size_multiplier", std::int64_t{1}));

    test::TemporaryFolder folder;
    NxdSettings settings = cut.settings;
    settings.config = config;
    write_conversion(plan_nxd_training(before, settings, cut.run), *before.source, folder.path(), {},
                     {.buffer_bytes = 300, .flush_bytes = 5000});
    const TrainingCheckpoint after = open(folder.path(), cut.settings.kv_multiplier);
    EXPECT_EQ(after.optimizer.updates, 4);
    EXPECT_EQ(after.step, 4);
    EXPECT_TRUE(elements_of(after.states, *after.source) == elements_of(before.states, *before.source));
    EXPECT_TRUE(elements_of(after.weights, *after.source) == elements_of(before.weights, *before.source));
    for (const char* marker : {"checkpoint", "done", "scheduler.pt"})
        EXPECT_TRUE(fs::exists(folder / marker)) << marker;
}

INSTANTIATE_TEST_SUITE_P(Meshes, NxdTraining, ::testing::Range(0, 4));

}  // namespace
}  // namespace drover
