#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "comm/threads/thread_world.h"
#include "io/checkpoint_manifest.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"
#include "support/golden.h"
#include "train/dealt_data.h"
#include "train/engine_model.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t row_length = 8, rows_per_step = 4;

/// One rank's engine, loop and data on a mesh.
class RankRun {
  public:
    RankRun(const test::MeshModel& model, const test::MeshCase& mesh_case, const Mesh& mesh,
            const fs::path& output, std::int64_t max_steps, const Precision& precision)
        : backend_(make_cpu_backend()) {
        const std::int64_t replicas = mesh.replicas().size();
        settings_ = {.output_dir = output,
                     .max_steps = max_steps,
                     .per_device_train_batch_size = rows_per_step / replicas,
                     .gradient_accumulation_steps = mesh_case.accumulation,
                     .learning_rate = 3e-3,
                     .lr_scheduler_type = "constant",
                     .logging_steps = 1.0,
                     .save_steps = 2.0,
                     .replicas = replicas,
                     .replica = mesh.replicas().rank(),
                     .is_local_process_zero = mesh.rank() == 0,
                     .is_world_process_zero = mesh.rank() == 0};
        settings_.finish();
        engine_ = std::make_unique<TrainEngine>(
            model.config,
            TrainEngineOptions{.model = {.precision = precision,
                                         .recompute = {},
                                         .rows = settings_.per_device_train_batch_size,
                                         .row_length = row_length},
                               .optimizer = OptimizerSettings::named(mesh_case.optimizer, 0.1),
                               .sharding = mesh_case.sharding,
                               .sequence_parallel = mesh_case.sequence_parallel},
            *backend_, mesh);
        engine_->allocate();
        engine_->initialize_weights(42);
        model_ = std::make_unique<EngineModel>(*engine_, model.config, *backend_, mesh);
        training_ =
            std::make_unique<test::DealtData>(training_sampler(settings_), 12, StreamEnd::never, row_length,
                                              static_cast<std::uint32_t>(model.config.vocab_size));
    }

    /// Records, without what differs because of who writes them.
    Json train(const std::optional<fs::path>& checkpoint = std::nullopt) {
        Trainer trainer(settings_, *model_, training_.get(), nullptr,
                        {.seconds = [](const Stopwatch&) { return 2.0; }});
        if (!checkpoint) {
            trainer.train();
        } else {
            const TrainerState state =
                TrainerState::parse(read_text_file(*checkpoint / "trainer_state.json"), "state");
            const std::optional<LoopState> loop = model_->resume(*checkpoint);
            trainer.train(&state, &*loop);
        }
        return trainer.state().log_history;
    }

    /// Reads a checkpoint and writes it again.
    void copy_checkpoint(const fs::path& from, const fs::path& to) {
        const std::optional<LoopState> loop = model_->resume(from);
        model_->save_checkpoint(
            {.folder = to, .trainer_state = read_text_file(from / "trainer_state.json"), .loop = *loop});
        EXPECT_EQ(model_->checkpoint_outcome(true)->error, "");
    }

    std::string outcome_of_saving_to(const fs::path& to) {
        model_->save_checkpoint({.folder = to, .trainer_state = "{}", .loop = {}});
        return model_->checkpoint_outcome(true)->error;
    }

  private:
    std::unique_ptr<Backend> backend_;
    TrainerSettings settings_;
    std::unique_ptr<TrainEngine> engine_;
    std::unique_ptr<EngineModel> model_;
    std::unique_ptr<test::DealtData> training_;
};

/// Every rank of the case calls `work`.
void on_mesh(const test::MeshModel& model, const test::MeshCase& mesh_case, const fs::path& output,
             std::int64_t max_steps, const Precision& precision, const std::function<void(RankRun&)>& work) {
    const auto& shape = mesh_case.shape;
    if (shape.ranks() == 1) {
        omp_set_num_threads(1);
        const Mesh mesh;
        RankRun run(model, mesh_case, mesh, output, max_steps, precision);
        return work(run);
    }

    run_as_threads(shape.ranks(), {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, shape, key_value_copies(model.config, shape.tp));
        RankRun run(model, mesh_case, mesh, output, max_steps, precision);
        work(run);
    });
}

test::MeshModel model_named(std::string_view name) {
    for (const test::MeshModel& model : test::mesh_models())
        if (model.name == name) return model;
    bug("no such model");
}

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

/// What one layout saved, every other reads and writes again, equal in every bit.
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

/// On the same layout, a resumed run is the one that was not stopped, in every bit.
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

/// Where one rank cannot write, no rank takes the checkpoint for written.
TEST(CheckpointMeshFailure, IsKnownToAllRanks) {
    test::TemporaryFolder folder;
    write_file_atomically(folder / "file", "");
    const test::MeshModel model = model_named("grouped-query");
    on_mesh(model, {.shape = {.data = 2}, .sharding = Sharding::zero3}, folder / "out", 2, Precision::fp32(),
            [&](RankRun& run) {
                run.train();
                EXPECT_NE(run.outcome_of_saving_to(folder / "file/checkpoint-2"), "");
                EXPECT_EQ(run.outcome_of_saving_to(folder / "out/checkpoint-3"), "");
            });
    EXPECT_EQ(find_damage(folder / "out/checkpoint-3"), std::nullopt);
}

}  // namespace
}  // namespace drover
