#include <gtest/gtest.h>

#include <cmath>

#include "support/errors.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

class Neftune : public ::testing::Test {
  protected:
    std::unique_ptr<TrainEngine> engine(double alpha, Recompute recompute = Recompute::none,
                                        std::uint64_t seed = 42) {
        TrainEngineOptions options = golden_.options(Precision::fp32(), {recompute});
        options.model.neftune_alpha = alpha;
        options.noise_seed = seed;
        return golden_.engine(*backend_, options);
    }

    const test::GoldenStep golden_{"gqa_float32"};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const std::vector<Batch> batches_ = {golden_.batch()};
};

TEST_F(Neftune, GivesTransformersNumbersForThisNoise) {
    const SafetensorsFile expected(test::golden_path("step/neftune_float32.safetensors"));
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const auto trained = engine(5, recompute);
        EXPECT_NEAR(trained->accumulate_gradients(batches_).loss,
                    static_cast<double>(expected.tensor("loss").data<float>()[0]), 2e-6);
        EXPECT_EQ(test::expect_gradients(*trained, expected, 1e-5), 4);
    }
}

TEST_F(Neftune, EvaluationHasNone) {
    EXPECT_EQ(engine(5)->evaluate(batches_[0]).loss_sum, engine(0)->evaluate(batches_[0]).loss_sum);
}

TEST_F(Neftune, EveryStepMicroBatchAndSeedHasItsOwnNoise) {
    const auto first = engine(5);
    const double loss = first->accumulate_gradients(batches_).loss;
    EXPECT_EQ(first->accumulate_gradients(batches_).loss, loss);
    EXPECT_NE(engine(5, Recompute::none, 43)->accumulate_gradients(batches_).loss, loss);
    const std::vector<Batch> twice = {batches_[0], batches_[0]};
    EXPECT_GT(std::fabs(first->accumulate_gradients(twice).loss - loss), 1e-6);
    first->step(batches_, 0.0);
    EXPECT_NE(first->accumulate_gradients(batches_).loss, loss);
}

TEST_F(Neftune, NegativeAlphaIsRefused) {
    test::expect_error<UsageError>([&] { engine(-1); }, {"--neftune_noise_alpha is -1"});
}

}  // namespace
}  // namespace drover
