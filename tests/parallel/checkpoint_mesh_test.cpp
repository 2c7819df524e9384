#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "parallel/rank_run.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::model_named;
using test::on_mesh;
using test::RankRun;

void expect_equal_checkpoints(const fs::path& a, const fs::path& b, const std::string& what) {
    const CheckpointManifest first = CheckpointManifest::read(a), second = CheckpointManifest::read(b);
    EXPECT_EQ(find_damage(a), std::nullopt) << what;
    EXPECT_EQ(first.state, second.state) << what;
    int weights = 0;
    for (const auto& [name, digest] : first.files) {
        weights += name.starts_with("model-");
        if (name.find(".safetensors") == std::string::npos && name != "config.json") continue;
        ASSERT_TRUE(second.files.contains(name)) << name << ", " << what;
        EXPECT_EQ(digest.hash, second.files.at(name).hash) << name << ", " << what;
    }
    EXPECT_GT(weights, 1) << "ranks do not share several files";
    EXPECT_TRUE(first.files.contains("optimizer.safetensors"));
}

struct Saved {
    test::MeshModel model;
    std::vector<test::MeshCase> layouts;
    Precision precision;
};

std::vector<test::MeshCase> layouts(const std::string& optimizer) {
    return {
        {.shape = {}, .optimizer = optimizer},
        {.shape = {.data = 2}, .sharding = Sharding::zero3, .optimizer = optimizer},
        {.shape = {.tp = 2}, .sequence_parallel = true, .optimizer = optimizer},
        {.shape = {.data = 2, .tp = 2}, .sharding = Sharding::zero3, .optimizer = optimizer},
        {.shape = {.dcn = 2, .data = 2}, .sharding = Sharding::zero1, .optimizer = optimizer},
        {.shape = {.tp = 4}, .optimizer = optimizer},
    };
}

std::vector<test::MeshCase> pipeline_layouts(const std::string& optimizer) {
    using Kind = PipelineScheduleKind;
    return {
        {.shape = {.pp = 2, .tp = 2}, .optimizer = optimizer},
        {.shape = {.pp = 4}, .optimizer = optimizer, .schedule = Kind::zero_bubble},
        {.shape = {.data = 4}, .sharding = Sharding::zero3, .optimizer = optimizer},
        {.shape = {.pp = 2}, .optimizer = optimizer, .chunks = 2},
        {.shape = {.tp = 4}, .sequence_parallel = true, .optimizer = optimizer},
        {.shape = {.pp = 2, .data = 2},
         .sharding = Sharding::zero3,
         .optimizer = optimizer,
         .schedule = Kind::zero_bubble,
         .chunks = 2},
        {.shape = {}, .optimizer = optimizer},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero1, .optimizer = optimizer},
    };
}

test::MeshModel five_layers(std::string_view name) {
    for (test::MeshModel& model : test::pipeline_models(5))
        if (model.name == name) return model;
    bug("no such model");
}

class CheckpointMesh : public testing::TestWithParam<Saved> {
  protected:
    test::TemporaryFolder folder_;
};

/// What one layout saved, every other reads and writes again, bit for bit.
TEST_P(CheckpointMesh, AnyLayoutReadsWhatAnyOtherWrote) {
    const auto& [model, all, precision] = GetParam();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const fs::path output = folder_ / fmt::format("by-{}", i);
        on_mesh(model, all[i], output, 2, precision, [](RankRun& run) { run.train(); });
        const fs::path saved = output / "checkpoint-2";
        const std::size_t reader = (i + 1) % all.size();
        const fs::path copy = folder_ / fmt::format("copy-{}", i);
        on_mesh(model, all[reader], output, 2, precision,
                [&](RankRun& run) { run.copy_checkpoint(saved, copy); });
        expect_equal_checkpoints(saved, copy, all[i].text() + " → " + all[reader].text());
    }
}

/// On the same layout, a resumed run equals the uninterrupted one, bit for bit.
TEST_P(CheckpointMesh, AResumedRunIsTheRunThatWasNotStopped) {
    const auto& [model, all, precision] = GetParam();
    for (test::MeshCase layout : all) {
        layout.accumulation = 2;
        const fs::path whole = folder_ / "whole", resumed = folder_ / "resumed";
        on_mesh(model, layout, whole, 6, precision, [](RankRun& run) { run.train(); });
        on_mesh(model, layout, resumed, 6, precision,
                [&](RankRun& run) { run.train(whole / "checkpoint-2"); });
        expect_equal_checkpoints(whole / "checkpoint-6", resumed / "checkpoint-6", layout.text());
        fs::remove_all(whole);
        fs::remove_all(resumed);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Saved, CheckpointMesh,
    testing::Values(Saved{model_named("uneven"), layouts("adamw_torch"), Precision::fp32()},
                    Saved{model_named("mixtral"), layouts("adafactor"), Precision::with_master(DType::bf16)},
                    Saved{model_named("tied"), layouts("adamw_torch"), Precision::pure_bf16()}),
    [](const auto& parameter) { return parameter.param.model.name; });

INSTANTIATE_TEST_SUITE_P(
    Pipeline, CheckpointMesh,
    testing::Values(Saved{five_layers("qwen3"), pipeline_layouts("adamw_torch"),
                          Precision::with_master(DType::bf16)},
                    Saved{five_layers("tied"), pipeline_layouts("adafactor"), Precision::fp32()},
                    Saved{five_layers("mixtral"), pipeline_layouts("adafactor"), Precision::pure_bf16()}),
    [](const auto& parameter) { return parameter.param.model.name; });

/// A run that was saved on one mesh goes on along the same curve on every other, and from there back.
TEST(PipelineCheckpoint, GoesOnOnAnyOtherMesh) {
    constexpr std::int64_t max_steps = 6;
    test::TemporaryFolder folder;
    for (const auto& [name, optimizer] :
         {std::pair("tied", "adamw_torch"), std::pair("mixtral", "adamw_torch"),
          std::pair("tied", "adafactor")}) {
        const test::MeshModel model = five_layers(name);
        std::vector<test::MeshCase> all = pipeline_layouts(optimizer);
        for (test::MeshCase& layout : all) layout.accumulation = 3;
        const Json alone = test::records_of(model, all[0].alone(), folder / "alone", max_steps);
        const fs::path first = folder / "first";
        test::expect_same_curve(test::records_of(model, all[0], first, max_steps), alone);
        for (std::size_t i = 1; i < all.size(); ++i) {
            SCOPED_TRACE(model.name + ", " + all[i].text());
            const fs::path second = folder / fmt::format("second-{}", i),
                           third = folder / fmt::format("third-{}", i);
            test::expect_same_curve(
                test::records_of(model, all[i], second, max_steps, first / "checkpoint-2"), alone);
            test::expect_same_curve(
                test::records_of(model, all[0], third, max_steps, second / "checkpoint-4"), alone);
        }
        fs::remove_all(first);
        for (std::size_t i = 1; i < all.size(); ++i)
            for (const char* leg : {"second", "third"}) fs::remove_all(folder / fmt::format("{}-{}", leg, i));
    }
}

/// If one rank cannot write, no rank considers the checkpoint written.
TEST(CheckpointMeshFailure, IsKnownToAllRanks) {
    test::TemporaryFolder folder;
    write_file_atomically(folder / "file", "");
    const test::MeshModel model = model_named("grouped-query");
    on_mesh(model, {.shape = {.data = 2}, .sharding = Sharding::zero3}, folder / "out", 2, Precision::fp32(),
            [&](RankRun& run) {
                run.train();
                const std::string error = run.outcome_of_saving_to(folder / "file/checkpoint-2");
                EXPECT_NE(error.find((folder / "file/checkpoint-2").string()), std::string::npos) << error;
                EXPECT_EQ(run.outcome_of_saving_to(folder / "out/checkpoint-3"), "");
            });
    EXPECT_EQ(find_damage(folder / "out/checkpoint-3"), std::nullopt);
}

}  // namespace
}  // namespace drover
