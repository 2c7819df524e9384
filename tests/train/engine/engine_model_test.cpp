#include "train/engine/engine_model.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "core/json_text.h"
#include "data/fakes.h"
#include "data/packing/token_file_writer.h"
#include "support/test_backend.h"
#include "train/engine/train_engine.h"
#include "train/loop/trainer.h"
#include "train/single_mesh.h"
#include "train/trainer_log_golden.h"

namespace drover {
namespace {

using test::settings_of;
using test::trainer_log;

/// The engine in the loop, on a token file, compared with a run of the real Trainer on the same samples.
class EngineInLoop : public testing::TestWithParam<std::string> {
  protected:
    TokenFile samples(std::string_view name, std::uint32_t first, std::uint32_t count) {
        TokenFileWriter writer(folder_ / name, test::ByteTokenizer(), {.block_size = row_length_});
        for (std::uint32_t sample = first; sample < first + count; ++sample) {
            std::mt19937 generator(1000u + sample);
            std::vector<TokenId> row;
            for (std::int64_t i = 0; i < row_length_; ++i)
                row.push_back(static_cast<TokenId>(generator() % 64));
            writer.add(row);
        }
        writer.finish();
        return TokenFile(folder_ / name);
    }

    test::TemporaryFolder folder_;
    std::int64_t row_length_ = trainer_log().at("sample_length");
};

TEST_P(EngineInLoop, FollowsTheRealTrainer) {
    const Json& golden = trainer_log().at("cases").at(GetParam());
    const TrainerSettings settings = settings_of(golden.at("settings"), folder_ / "out");
    const TokenFile training = samples("training", 0, trainer_log().at("train_samples"));
    const TokenFile evaluation = samples("evaluation", 3, trainer_log().at("eval_samples"));
    const CollatorOptions collator{.ignore_every_pad_id = false};
    TokenFileData training_data(
        training.rows(), {.sampler = training_sampler(settings), .collator = collator}, StreamEnd::never);
    TokenFileData evaluation_data(evaluation.rows(),
                                  {.sampler = evaluation_sampler(settings), .collator = collator},
                                  StreamEnd::after_one_epoch);

    const Json config_json = read_json_file(test::golden_path("curve/linear.json")).at("config");
    const ModelConfig config = ModelConfig::parse(config_json.dump(), "golden");
    const auto backend = test::make_test_backend();
    TrainEngine engine(
        config,
        {.model = {.precision = Precision::fp32(), .recompute = {}, .rows = 2, .row_length = row_length_}},
        *backend, test::single_mesh());
    engine.allocate();
    engine.initialize_weights(42);
    EngineModel model(engine, config, *backend, test::single_mesh());
    EXPECT_EQ(model.parameters().total, golden.at("parameters").get<std::int64_t>());
    EXPECT_EQ(model.parameters().without_embeddings,
              golden.at("parameters_without_embeddings").get<std::int64_t>());

    Trainer trainer(settings, model, &training_data, &evaluation_data);
    trainer.train();
    trainer.evaluate();

    const Json& history = trainer.state().log_history;
    ASSERT_EQ(history.size(), golden.at("log_history").size());
    for (std::size_t i = 0; i < history.size(); ++i)
        for (const auto& [key, expected] : golden.at("log_history")[i].items()) {
            ASSERT_TRUE(history[i].contains(key)) << key;
            const double value = history[i].at(key), wanted = expected;
            const bool exact =
                key == "epoch" || key == "step" || key == "total_flos" || key == "eval_accuracy";
            const bool timed =
                key.find("_second") != std::string::npos || key.find("_runtime") != std::string::npos;
            const double limit = exact || timed           ? 0
                                 : key == "learning_rate" ? 1e-15
                                 : key == "grad_norm"     ? 1e-3 * wanted
                                                          : 2e-4;
            if (!timed) {
                EXPECT_NEAR(value, wanted, limit) << key << " of record " << i;
            }
        }
}

INSTANTIATE_TEST_SUITE_P(Golden, EngineInLoop,
                         testing::Values("accumulation", "evaluate_steps", "fractional_epochs"),
                         [](const auto& parameter) { return parameter.param; });

TEST(CountParameters, OfTiedAndExpertModels) {
    const Json golden = read_json_file(test::golden_path("curve/mixtral_adamw.json"));
    ModelConfig config = ModelConfig::parse(golden.at("config").dump(), "golden");
    const ParameterCounts counts = count_parameters(config);
    EXPECT_LT(counts.active, counts.total);
    EXPECT_EQ(counts.without_embeddings, counts.total - config.vocab_size * config.hidden_size);
    EXPECT_EQ(counts.multiplied, counts.active - config.vocab_size * config.hidden_size);
    Json tied = golden.at("config");
    tied["tie_word_embeddings"] = true;
    EXPECT_EQ(count_parameters(ModelConfig::parse(tied.dump(), "tied")).total,
              counts.total - config.vocab_size * config.hidden_size);
}

}  // namespace
}  // namespace drover
