#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

class Evaluation : public ::testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

/// A batch with more rows than in training gives the same result in pieces, including the balance loss, whose
/// means are over all of its tokens.
TEST_P(Evaluation, DoesNotDependOnThePieces) {
    const test::GoldenStep golden(std::string(GetParam()) + "_float32");
    const Batch batch = golden.batch();
    ASSERT_EQ(batch.rows, 2);
    TrainEngineOptions options = golden.options(Precision::fp32());
    options.model.rows = 1;
    const EvaluationResult pieces = golden.engine(*backend_, options)->evaluate(batch);
    const EvaluationResult whole = golden.engine(*backend_, Precision::fp32())->evaluate(batch);
    EXPECT_NEAR(pieces.loss_sum, whole.loss_sum, 1e-5 * whole.loss_sum);
    EXPECT_NEAR(pieces.balance_loss, whole.balance_loss, 1e-6 * whole.balance_loss);
    EXPECT_EQ(pieces.targets, batch.target_count());
    EXPECT_EQ(pieces.denominator, whole.denominator);
    EXPECT_EQ(pieces.correct, whole.correct);
    EXPECT_NEAR(pieces.batch_loss(), static_cast<double>(golden.file().tensor("loss").data<float>()[0]),
                2e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation,
                         ::testing::Values("gqa", "gqa_padded", "mixtral_aux_top2", "mixtral_padded_aux"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace drover
