#include <gtest/gtest.h>
#include <omp.h>

#include <mutex>

#include "comm/threads/thread_world.h"
#include "parallel/mesh_cases.h"
#include "train/dealt_data.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

constexpr std::int64_t trainer_row_length = 12;

/// The log of a run with two samples per step, on any number of replicas.
Json log_of_run(const ModelConfig& config, const Mesh& mesh) {
    const std::int64_t ranks = mesh.replicas().size();
    const auto backend = make_cpu_backend();
    TrainEngine engine(config,
                       {
                           .model = {.precision = Precision::fp32(),
                                     .recompute = {},
                                     .rows = 2 / ranks,
                                     .row_length = trainer_row_length},
                       },
                       *backend, mesh);
    engine.allocate();
    engine.initialize_weights(42);
    EngineModel model(engine, config, *backend, mesh);

    TrainerSettings settings{.num_train_epochs = 1.5,
                             .per_device_train_batch_size = 2 / ranks,
                             .per_device_eval_batch_size = 2 / ranks,
                             .learning_rate = 1e-3,
                             .logging_steps = 1.0,
                             .eval_strategy = IntervalStrategy::epoch,
                             .save_strategy = IntervalStrategy::no,
                             .replicas = ranks,
                             .replica = mesh.replicas().rank()};
    settings.finish();
    const auto vocab = static_cast<std::uint32_t>(config.vocab_size);
    test::DealtData training(training_sampler(settings), 8, StreamEnd::never, trainer_row_length, vocab);
    test::DealtData evaluation(evaluation_sampler(settings), 5, StreamEnd::after_one_epoch,
                               trainer_row_length, vocab);
    Trainer trainer(settings, model, &training, &evaluation,
                    {.seconds = [](const Stopwatch&) { return 2.0; }});
    trainer.train();
    return trainer.state().log_history;
}

/// Five samples on two ranks: the last round repeats one, which must not count.
TEST(TrainerMesh, TwoReplicasLogWhatOneProcessDoes) {
    omp_set_num_threads(1);
    for (const test::MeshModel& model : test::mesh_models()) {
        if (model.name != "grouped-query" && model.name != "mixtral") continue;
        const Json alone = log_of_run(model.config, Mesh());
        std::mutex guard;
        run_as_threads(2, {}, [&](World& world) {
            omp_set_num_threads(1);
            const Mesh mesh(world, {.data = 2});
            const Json together = log_of_run(model.config, mesh);
            const std::lock_guard lock(guard);
            ASSERT_EQ(together.size(), alone.size());
            for (std::size_t i = 0; i < alone.size(); ++i)
                for (const auto& [key, expected] : alone[i].items()) {
                    // The balance loss of a batch of two samples is not the mean of two batches of one.
                    if (model.config.has_experts() && key == "eval_loss") continue;
                    ASSERT_TRUE(together[i].contains(key)) << key;
                    const double wanted = expected;
                    EXPECT_NEAR(together[i].at(key).get<double>(), wanted, 1e-4 * std::abs(wanted))
                        << model.name << ", " << key << " of record " << i;
                }
        });
    }
}

}  // namespace
}  // namespace drover
