#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

class Evaluation : public ::testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

/// A batch with more rows than training's is the same batch: also for the balance loss, whose means are over
/// all of its tokens.
TEST_P(Evaluation, DoesNotDependOnThePieces) {
    const test::GoldenStep golden(std::string(GetParam()) + "_float32");
    const TokenBatch batch = golden.batch();
    ASSERT_EQ(batch.rows, 2);
    TrainEngineOptions options = golden.options(Precision::fp32());
    options.model.rows = 1;
    const EvaluationResult pieces = golden.engine(*backend_, options)->evaluate(batch);
    const EvaluationResult whole = golden.engine(*backend_, Precision::fp32())->evaluate(batch);
    EXPECT_NEAR(pieces.loss_sum, whole.loss_sum, 1e-5 * whole.loss_sum);
    EXPECT_NEAR(pieces.balance_loss, whole.balance_loss, 1e-6 * whole.balance_loss);
    EXPECT_EQ(pieces.rows, 2);
    EXPECT_EQ(pieces.targets, batch.target_count());
    EXPECT_EQ(pieces.denominator, whole.denominator);
    EXPECT_EQ(pieces.correct, whole.correct);
    EXPECT_NEAR(pieces.batch_loss(), static_cast<double>(golden.file().tensor("loss").data<float>()[0]),
                2e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation,
                         ::testing::Values("gqa", "gqa_padded", "mixtral_aux_top2", "mixtral_padded_aux"),
                         [](const auto& model) { return std::string(model.param); });

/// A label of −100 is no target wherever it stands, nor is it counted; the first label of a row is counted,
/// though nothing predicts it.
TEST(TokenBatches, LabelsInsideARowMayBeNone) {
    const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<std::int32_t> labels = {1, ignored_target, 3, 4, ignored_target, 6, ignored_target, 8};
    const TokenBatch batch = TokenBatch::from_labels(2, 4, ids, labels);
    EXPECT_EQ(batch.targets, (std::vector<std::int32_t>{ignored_target, 3, 4, ignored_target,  //
                                                        6, ignored_target, 8, ignored_target}));
    EXPECT_EQ(batch.target_count(), 4);
    EXPECT_EQ(batch.label_count, 5);
}

TEST(TokenBatches, SomeRowsKeepTheirSequences) {
    std::vector<std::int32_t> ids(24);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    const std::vector<std::vector<std::int32_t>> lengths = {{3, 5}, {}, {4, 2}};
    const TokenBatch batch = TokenBatch::packed(3, 8, ids, ids, lengths);
    const TokenBatch last = batch.some_rows(2, 1);
    EXPECT_EQ(last.ids, std::vector<std::int32_t>(ids.begin() + 16, ids.end()));
    EXPECT_EQ(last.sequence_begin, (std::vector<std::int32_t>{0, 4}));
    EXPECT_EQ(last.sequence_length, (std::vector<std::int32_t>{4, 2}));
    EXPECT_EQ(last.target_count(), 4);
    const TokenBatch empty = batch.some_rows(1, 1);
    EXPECT_EQ(empty.sequence_length,
              std::vector<std::int32_t>{0});  // no sequence, rather than one that fills the row
    EXPECT_EQ(batch.some_rows(0, 2).sequence_length, (std::vector<std::int32_t>{3, 5}));
}

}  // namespace
}  // namespace drover
