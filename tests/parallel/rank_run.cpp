#include "parallel/rank_run.h"

#include <omp.h>

#include <cmath>
#include <mutex>
#include <set>

#include "comm/threads/thread_world.h"
#include "core/text_file.h"
#include "model/block_shape.h"
#include "train/engine/train_engine.h"

namespace drover::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t rank_row_length = 8;

}  // namespace

RankRun::RankRun(const MeshModel& model, const MeshCase& mesh_case, const Mesh& mesh, const fs::path& output,
                 std::int64_t max_steps, const Precision& precision)
    : backend_(make_cpu_backend()) {
    const std::int64_t replicas = mesh.replicas().size();
    settings_ = {.output_dir = output,
                 .max_steps = max_steps,
                 .per_device_train_batch_size = mesh_case.rows / replicas,
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
                                     .recompute = {.kind = mesh_case.recompute},
                                     .fp8 = model.fp8,
                                     .rows = settings_.per_device_train_batch_size,
                                     .row_length = rank_row_length,
                                     .adapters = model.adapters},
                           .optimizer = OptimizerSettings::named(mesh_case.optimizer, 0.1),
                           .sharding = mesh_case.sharding,
                           .pipeline = {.schedule = mesh_case.schedule,
                                        .chunks = mesh_case.chunks,
                                        .micro_batches = mesh_case.accumulation},
                           .sequence_parallel = mesh_case.sequence_parallel},
        *backend_, mesh);
    engine_->allocate();
    engine_->initialize_weights(42);
    if (model.adapters.any()) engine_->initialize_adapters(42);
    constexpr std::uint64_t several_files = 20'000;
    model_ = std::make_unique<EngineModel>(*engine_, model.config, *backend_, mesh, EngineModel::AfterSave(),
                                           CheckpointOptions{.max_shard_bytes = several_files});
    training_ =
        std::make_unique<DealtData>(training_sampler(settings_), 3 * mesh_case.rows, StreamEnd::never,
                                    rank_row_length, static_cast<std::uint32_t>(model.config.vocab_size));
}

Json RankRun::train(const std::optional<fs::path>& checkpoint) {
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

void RankRun::copy_checkpoint(const fs::path& from, const fs::path& to) {
    const std::optional<LoopState> loop = model_->resume(from);
    model_->save_checkpoint(
        {.folder = to, .trainer_state = read_text_file(from / "trainer_state.json"), .loop = *loop});
    EXPECT_EQ(model_->checkpoint_outcome(true)->error, "");
}

std::string RankRun::outcome_of_saving_to(const fs::path& to) {
    model_->save_checkpoint({.folder = to, .trainer_state = "{}", .loop = {}});
    return model_->checkpoint_outcome(true)->error;
}

void on_mesh(const MeshModel& model, const MeshCase& mesh_case, const fs::path& output,
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

Json records_of(const MeshModel& model, const MeshCase& mesh_case, const fs::path& output,
                std::int64_t max_steps, const std::optional<fs::path>& checkpoint) {
    std::mutex guard;
    std::set<std::string> on_ranks;
    Json records;
    on_mesh(model, mesh_case, output, max_steps, Precision::fp32(), [&](RankRun& run) {
        const Json own = run.train(checkpoint);
        const std::lock_guard lock(guard);
        on_ranks.insert(own.dump());
        records = own;
    });
    EXPECT_EQ(on_ranks.size(), 1u) << "the ranks log different things";
    return records;
}

void expect_same_curve(const Json& actual, const Json& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        for (const auto& [key, value] : expected[i].items()) {
            ASSERT_TRUE(actual[i].contains(key)) << key << " of record " << i;
            const double wanted = value;
            // Totals of a resumed run count from where it resumed.
            if (key == "train_loss") continue;
            EXPECT_NEAR(actual[i].at(key).get<double>(), wanted, 1e-4 * std::abs(wanted))
                << key << " of record " << i;
        }
}

MeshModel model_named(std::string_view name) {
    for (const MeshModel& model : mesh_models())
        if (model.name == name) return model;
    bug("no such model");
}

}  // namespace drover::test
