#include <gtest/gtest.h>
#include <omp.h>

#include <mutex>
#include <random>

#include "comm/threads/thread_world.h"
#include "parallel/mesh_cases.h"
#include "train/engine_model.h"
#include "train/trainer.h"

namespace drover {
namespace {

constexpr std::int64_t row_length = 12;

/// Random rows, dealt to ranks as the Trainer does it.
class DealtData final : public TrainingData {
  public:
    DealtData(SamplerOptions options, StreamEnd end, std::uint32_t vocab)
        : options_(options), end_(end), vocab_(vocab), sampler_(options) {}

    std::int64_t samples() const override { return options_.samples; }
    std::int64_t batches_per_epoch() const override { return sampler_.batches_per_epoch(); }
    std::int64_t tokens_per_epoch() const override { return options_.samples * row_length; }
    std::unique_ptr<BatchStream> open(BatchPosition start) override {
        return std::make_unique<Stream>(*this, start);
    }

  private:
    struct Stream final : BatchStream {
        Stream(DealtData& data, BatchPosition start) : data_(data), position_(start) {}

        std::optional<TrainingBatch> next() override {
            if (position_.step == data_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
            if (data_.end_ == StreamEnd::after_one_epoch && position_.epoch > 0) return std::nullopt;
            const auto samples = data_.sampler_.batch(position_.epoch, position_.step);
            std::vector<std::int32_t> ids;
            for (const std::int64_t sample : samples) {
                std::mt19937 generator(static_cast<std::uint32_t>(sample));
                for (std::int64_t i = 0; i < row_length; ++i)
                    ids.push_back(static_cast<std::int32_t>(generator() % data_.vocab_));
            }
            const auto rows = static_cast<std::int64_t>(samples.size());
            TrainingBatch batch{.epoch = position_.epoch,
                                .step = position_.step,
                                .tokens = TokenBatch::from_labels(rows, row_length, ids, ids),
                                .attended = rows * row_length,
                                .fresh = data_.sampler_.fresh(position_.step)};
            ++position_.step;
            return batch;
        }

        DealtData& data_;
        BatchPosition position_;
    };

    SamplerOptions options_;
    StreamEnd end_;
    std::uint32_t vocab_;
    BatchSampler sampler_;
};

/// What a run with two samples per step logs, on however many replicas.
Json log_of_run(const ModelConfig& config, const Mesh& mesh) {
    const std::int64_t ranks = mesh.replicas().size();
    const auto backend = make_cpu_backend();
    TrainEngine engine(config,
                       {.model = {.precision = Precision::fp32(),
                                  .recompute = {},
                                  .rows = 2 / ranks,
                                  .row_length = row_length},
                        .adamw = {}},
                       *backend, mesh);
    engine.allocate();
    engine.initialize_weights(42);
    EngineModel model(engine, config, *backend, mesh, 42);

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
    const auto with_samples = [](SamplerOptions options, std::int64_t samples) {
        options.samples = samples;
        return options;
    };
    DealtData training(with_samples(training_sampler(settings), 8), StreamEnd::never, vocab);
    DealtData evaluation(with_samples(evaluation_sampler(settings), 5), StreamEnd::after_one_epoch, vocab);
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
