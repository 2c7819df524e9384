#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <mutex>
#include <set>

#include "backend/backend.h"
#include "comm/threads/thread_world.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

constexpr std::int64_t engine_row_length = 8;

TrainEngineOptions options_of(const test::MeshCase& mesh_case, std::int64_t rows) {
    return {.model = {.precision = Precision::fp32(),
                      .recompute = {},
                      .rows = rows,
                      .row_length = engine_row_length},
            .max_gradient_norm = 1.0,
            .compat = {},
            .sharding = mesh_case.sharding,
            .sequence_parallel = mesh_case.sequence_parallel,
            .skip_non_finite = true};
}

Batch some_rows(std::int64_t first, std::int64_t count, std::int64_t vocab) {
    return test::numbered_rows(first, count, engine_row_length, vocab);
}

std::vector<test::MeshCase> cases() {
    std::vector<test::MeshCase> chosen = test::mesh_cases(4);
    std::erase_if(chosen, [](const test::MeshCase& mesh_case) { return mesh_case.accumulation != 1; });
    return chosen;
}

/// A non-finite number is on one rank only; all ranks skip the step and report the same name.
TEST(NonFiniteOnAMesh, IsSkippedAndNamedOnEveryRank) {
    omp_set_num_threads(1);
    const test::MeshModel model = test::mesh_models()[1];
    for (const test::MeshCase& mesh_case : cases()) {
        std::mutex guard;
        std::set<std::string> named;
        int poisoned = 0, skipped = 0;
        run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
            omp_set_num_threads(1);
            const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
            const auto backend = make_cpu_backend();
            TrainEngine engine(model.config, options_of(mesh_case, 1), *backend, mesh);
            engine.allocate();
            engine.initialize_weights(1);
            const auto before = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
            const OwnedLeaf* last_rows =
                nullptr;  // this rank's leaf, if it has the last rows of the matrix (split or whole)
            for (const OwnedLeaf& leaf : engine.store().owned())
                if (leaf.spec->name == "model.layers.1.mlp.up_proj.weight" &&
                    leaf.row_begin + leaf.row_count == leaf.spec->shape[0])
                    last_rows = &leaf;
            float* const at =
                last_rows ? last_rows->param.data<float>() + last_rows->param.numel() - 1 : nullptr;
            const float kept = at ? *at : 0;
            if (at) *at = std::nanf("");
            const std::vector<Batch> batches = {
                some_rows(mesh.replicas().rank(), 1, model.config.vocab_size)};
            const UpdateResult result = engine.step(batches, 1e-3);
            if (at) *at = kept;
            const auto after = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
            const std::lock_guard lock(guard);
            poisoned += at != nullptr;
            skipped += !result.updated && engine.updates_done() == 0 && after == before;
            named.insert(result.non_finite.value_or("nothing"));
        });
        EXPECT_GE(poisoned, 1) << mesh_case.text();
        EXPECT_EQ(skipped, 4) << mesh_case.text();
        EXPECT_EQ(named, std::set<std::string>{"the weight model.layers.1.mlp.up_proj.weight"})
            << mesh_case.text();
    }
}

/// Runs body(engine, mesh) on every rank of a case, with the weights of one seed.
template <class Body>
void on_every_rank(const test::MeshModel& model, const test::MeshCase& mesh_case, const Body& body) {
    run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
        const auto backend = make_cpu_backend();
        TrainEngine engine(model.config, options_of(mesh_case, 1), *backend, mesh);
        engine.allocate();
        engine.initialize_weights(1);
        body(engine, mesh);
    });
}

/// Every rank owns its part of the same larger vocabulary.
TEST(ResizeOnAMesh, GivesTheSameWeights) {
    omp_set_num_threads(1);
    for (test::MeshModel model : test::mesh_models()) {
        if (model.name != "tied" && model.name != "uneven") continue;
        model.config.resize_vocabulary(70);
        const auto backend = make_cpu_backend();
        const Mesh single;
        TrainEngine alone(model.config, options_of({}, 1), *backend, single);
        alone.allocate();
        alone.initialize_weights(1);
        const auto expected = test::whole_leaves(alone.model_spec(), alone.store(), single);
        for (const test::MeshCase& mesh_case : cases())
            on_every_rank(model, mesh_case, [&](TrainEngine& engine, const Mesh& mesh) {
                EXPECT_EQ(test::whole_leaves(engine.model_spec(), engine.store(), mesh), expected)
                    << mesh_case.text();
            });
    }
}

/// Eight rows, in pieces of one row on each rank.
TEST(EvaluationOnAMesh, SumsUpAllRanksAndPieces) {
    omp_set_num_threads(1);
    for (const test::MeshModel& model : test::mesh_models()) {
        if (model.name != "mixtral" && model.name != "uneven") continue;
        const auto backend = make_cpu_backend();
        const Mesh single;
        TrainEngine alone(model.config, options_of({}, 8), *backend, single);
        alone.allocate();
        alone.initialize_weights(1);
        const EvaluationResult expected = alone.evaluate(some_rows(0, 8, model.config.vocab_size));
        for (const test::MeshCase& mesh_case : cases())
            on_every_rank(model, mesh_case, [&](TrainEngine& engine, const Mesh& mesh) {
                const std::int64_t rows = 8 / mesh.replicas().size();
                const EvaluationResult result =
                    engine.evaluate(some_rows(mesh.replicas().rank() * rows, rows, model.config.vocab_size));
                std::vector<double> sums = {result.batch_loss(), static_cast<double>(result.targets),
                                            static_cast<double>(result.correct)};
                mesh.replicas().all_reduce({}, Tensor::of(sums.data(), {3}), Reduction::sum);
                // Replicas with equal rows and different numbers of targets: the mean of their losses is the
                // true mean.
                EXPECT_NEAR(sums[0] / mesh.replicas().size(), expected.batch_loss(), 1e-5)
                    << mesh_case.text();
                EXPECT_NEAR(result.balance_loss, expected.balance_loss, 1e-6) << mesh_case.text();
                EXPECT_EQ(sums[1], expected.targets) << mesh_case.text();
                EXPECT_EQ(sums[2], expected.correct) << mesh_case.text();
            });
    }
}

/// With one micro-batch in an update; whole gradients, or the owned rows alone.
TEST(GradientMemoryOnAMesh, IsSharedWithActivationsUnderEverySharding) {
    omp_set_num_threads(1);
    for (const test::MeshModel& model : test::mesh_models()) {
        if (model.name != "mixtral" && model.name != "uneven" && model.name != "tied") continue;
        for (const test::MeshCase& mesh_case : cases())
            run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
                omp_set_num_threads(1);
                const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
                const auto backend = make_cpu_backend();
                TrainEngineOptions options = options_of(mesh_case, 4);
                TrainEngine apart(model.config, options, *backend, mesh);
                options.pipeline.micro_batches = 1;
                TrainEngine sharing(model.config, options, *backend, mesh);
                for (TrainEngine* engine : {&apart, &sharing}) {
                    engine->allocate();
                    engine->initialize_weights(1);
                }
                const MemoryPlan& plan = sharing.memory_plan();
                const std::size_t shared = plan[MemoryUse::gradients_after_activations];
                EXPECT_GT(shared, 0u) << model.name << ' ' << mesh_case.text();
                EXPECT_EQ(plan[MemoryUse::gradients] + shared, apart.memory_plan()[MemoryUse::gradients]);
                EXPECT_EQ(plan.total + shared, apart.memory_plan().total);
                const Batch batch = some_rows(4 * mesh.replicas().rank(), 4, model.config.vocab_size);
                for (int step = 0; step < 2; ++step) {
                    const UpdateResult expected = apart.step({&batch, 1}, 1e-2),
                                       got = sharing.step({&batch, 1}, 1e-2);
                    EXPECT_EQ(got.loss, expected.loss) << mesh_case.text();
                    EXPECT_EQ(got.gradient_norm, expected.gradient_norm) << mesh_case.text();
                    sharing.evaluate(batch);
                }
                EXPECT_EQ(test::whole_leaves(sharing.model_spec(), sharing.store(), mesh),
                          test::whole_leaves(apart.model_spec(), apart.store(), mesh))
                    << model.name << ' ' << mesh_case.text();
            });
    }
}

}  // namespace
}  // namespace drover
