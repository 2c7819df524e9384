#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

// `label_smoothing_factor` and the choices of the loss's divisor.

namespace drover {
namespace {

class LabelSmoothing : public ::testing::TestWithParam<const char*> {
  protected:
    LabelSmoothing() : expected_(test::golden_path("step/smoothed.safetensors")) {}

    double loss() const {
        return static_cast<double>(expected_.tensor(GetParam() + std::string(".loss")).data<float>()[0]);
    }

    SafetensorsFile expected_;
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

TEST_P(LabelSmoothing, LossAndGradientsAreThoseOfTransformersSmoother) {
    const test::GoldenStep golden(std::string(GetParam()) + "_float32");
    TrainEngineOptions options = golden.options(Precision::fp32(), {Recompute::selective});
    options.model.label_smoothing = 0.1;
    const auto engine = golden.engine(*backend_, options);
    const std::vector<Batch> batches = {golden.batch()};
    EXPECT_NEAR(engine->accumulate_gradients(batches).loss, loss(), 2e-6);
    int compared = 0;
    for (const OwnedLeaf& leaf : engine->store().owned()) {
        const std::string name = GetParam() + (".grad." + leaf.spec->name);
        if (!expected_.find(name)) continue;
        EXPECT_LE(test::relative_error(leaf.gradient, expected_.tensor(name)), 1e-5) << leaf.spec->name;
        ++compared;
    }
    EXPECT_EQ(compared, golden.config().tie_word_embeddings ? 3 : 4);
    // As in the Trainer, evaluation has the same loss, and neither includes the experts' balance loss.
    EXPECT_NEAR(engine->evaluate(batches[0]).batch_loss(), loss(), 2e-6);

    // Two equal micro-batches of one step: their mean in 5.x, their sum in 4.57.
    const std::vector<Batch> twice = {batches[0], batches[0]};
    EXPECT_NEAR(engine->accumulate_gradients(twice).loss, loss(), 2e-6);
    options.compat.loss_denominator = HfCompat::LossDenominator::all_labels;
    EXPECT_NEAR(golden.engine(*backend_, options)->accumulate_gradients(twice).loss, 2 * loss(), 4e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, LabelSmoothing,
                         ::testing::Values("gqa", "gqa_padded", "tied_llama3", "mixtral_aux_top2"),
                         [](const auto& model) { return std::string(model.param); });

TEST(LabelSmoothingFactor, OutsideItsRangeIsRefused) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    for (const double factor : {-0.1, 1.5, std::nan("")}) {
        TrainEngineOptions options = golden.options(Precision::fp32());
        options.model.label_smoothing = factor;
        test::expect_error<UsageError>([&] { golden.engine(*backend, options); },
                                       {"--label_smoothing_factor is ", fmt::format("{}", factor)});
    }
}

/// 4.57 also counts the labels that nothing predicts: (T − 1)/T of the true mean if no label is ignored.
TEST(LossDenominator, Of457CountsAllLabels) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const Batch source = golden.batch();
    const Batch full = Batch::full_rows(source.rows, source.row_length, source.ids, source.ids);
    const Batch ignoring = source;
    const auto engine_with = [&](HfCompat::LossDenominator denominator) {
        TrainEngineOptions options = golden.options(Precision::fp32());
        options.compat.loss_denominator = denominator;
        return golden.engine(*backend, options);
    };
    const auto plain = engine_with(HfCompat::LossDenominator::target_tokens),
               old = engine_with(HfCompat::LossDenominator::all_labels);
    const auto length = static_cast<double>(full.row_length);
    const std::vector<Batch> batches = {full, ignoring};
    for (const Batch& batch : batches) {
        const double shrink =
            static_cast<double>(batch.target_count()) / static_cast<double>(batch.label_count());
        if (&batch == &batches[0]) {
            EXPECT_DOUBLE_EQ(shrink, (length - 1) / length);
        }
        const std::vector<Batch> one = {batch};
        const UpdateResult mean = plain->accumulate_gradients(one), shrunk = old->accumulate_gradients(one);
        EXPECT_NEAR(shrunk.loss, mean.loss * shrink, 1e-6);
        EXPECT_NEAR(shrunk.gradient_norm, mean.gradient_norm * shrink, 1e-5);
        EXPECT_NEAR(old->evaluate(batch).mean_loss(), plain->evaluate(batch).mean_loss() * shrink, 1e-6);
    }
    // There is one count per step, whatever the micro-batches hold.
    const double all = static_cast<double>(full.label_count() + ignoring.label_count());
    const EvaluationResult a = plain->evaluate(full), b = plain->evaluate(ignoring);
    EXPECT_NEAR(old->accumulate_gradients(batches).loss, (a.loss_sum + b.loss_sum) / all, 1e-6);
}

}  // namespace
}  // namespace drover
