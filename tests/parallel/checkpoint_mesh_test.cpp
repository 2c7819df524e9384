#include <fmt/format.h>
#include <gtest/gtest.h>

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
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.json"})
        EXPECT_EQ(first.files.at(name).hash, second.files.at(name).hash) << name << ", " << what;
}

struct Saved {
    std::string model;
    std::string optimizer;
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

class CheckpointMesh : public testing::TestWithParam<Saved> {
  protected:
    test::TemporaryFolder folder_;
};

/// What one layout saved, every other reads and writes again, bit for bit.
TEST_P(CheckpointMesh, AnyLayoutReadsWhatAnyOtherWrote) {
    const auto& [name, optimizer, precision] = GetParam();
    const test::MeshModel model = model_named(name);
    const auto all = layouts(optimizer);
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
    const auto& [name, optimizer, precision] = GetParam();
    const test::MeshModel model = model_named(name);
    for (test::MeshCase& layout : layouts(optimizer)) {
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

INSTANTIATE_TEST_SUITE_P(Saved, CheckpointMesh,
                         testing::Values(Saved{"uneven", "adamw_torch", Precision::fp32()},
                                         Saved{"mixtral", "adafactor", Precision::with_master(DType::bf16)},
                                         Saved{"tied", "adamw_torch", Precision::pure_bf16()}),
                         [](const auto& parameter) { return parameter.param.model; });

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
