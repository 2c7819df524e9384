#include "train/engine/pipeline_memory.h"

#include <gtest/gtest.h>

#include <mutex>

#include "backend/backend.h"
#include "comm/threads/thread_world.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"
#include "train/engine/memory_advice.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

TrainEngineOptions pipeline_options(int micro_batches) {
    TrainEngineOptions options{
        .model = {.precision = Precision::fp32(), .rows = 4, .row_length = 16},
        .optimizer = OptimizerSettings::named("adamw_torch", 0),
    };
    options.sharding = Sharding::zero1;
    options.pipeline.micro_batches = micro_batches;
    return options;
}

/// What every rank plans for all is what each plans for itself, up to rows that do not divide evenly.
TEST(PipelineMemory, IsThatOfEachRanksOwnEngine) {
    for (const test::MeshModel& model : test::pipeline_models(5))
        for (const MeshShape& shape : {MeshShape{.pp = 4}, MeshShape{.pp = 2, .data = 2, .tp = 2}}) {
            std::mutex guard;
            run_as_threads(shape.ranks(), {}, [&](World& world) {
                const Mesh mesh(world, shape, key_value_copies(model.config, shape.tp));
                const auto backend = make_cpu_backend();
                const TrainEngineOptions options = pipeline_options(6);
                const std::vector<RankMemory> planned =
                    plan_pipeline_memory(model.config, options, *backend, mesh);
                const TrainEngine engine(model.config, options, *backend, mesh);
                const std::lock_guard lock(guard);
                ASSERT_EQ(planned.size(), static_cast<std::size_t>(shape.pp));
                const MemoryPlan& own = planned[static_cast<std::size_t>(mesh.place().pp)].device;
                EXPECT_GE(own.total, engine.memory_plan().total) << model.name;
                const bool is_first = mesh.place().data == 0 && mesh.place().dcn == 0 && mesh.place().tp == 0;
                if (is_first) {
                    EXPECT_EQ(own.total, engine.memory_plan().total) << model.name;
                }
            });
        }
}

/// The first rank holds four micro-batches, the last one, and the advice counts with the largest.
TEST(PipelineMemory, AdviceFitsEveryRank) {
    ModelConfig config = test::pipeline_models(4).front().config;
    config.vocab_size = 8;
    run_as_threads(4, {}, [&](World& world) {
        const Mesh mesh(world, {.pp = 4});
        const auto backend = make_cpu_backend();
        TrainEngineOptions options = pipeline_options(8);
        options.model.rows = 8;
        const std::vector<RankMemory> whole = plan_pipeline_memory(config, options, *backend, mesh);
        EXPECT_EQ(largest_rank(whole), 0);
        EXPECT_GT(whole.front().device.total, whole.back().device.total);
        // Enough for all ranks but the first.
        const MemoryLimits limits{.device_bytes = whole[1].device.total};
        const std::int64_t rows = largest_fitting_rows(config, options, *backend, mesh, limits);
        EXPECT_GT(rows, 0);
        EXPECT_LT(rows, 8);
        options.model.rows = rows;
        for (const RankMemory& rank : plan_pipeline_memory(config, options, *backend, mesh))
            EXPECT_LE(rank.device.total, limits.device_bytes);
    });
}

}  // namespace
}  // namespace drover
