#include <gtest/gtest.h>

#include "model/params.h"
#include "support/errors.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

class OneStep : public ::testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

TEST_P(OneStep, Float32LossAndEveryGradient) {
    const test::GoldenStep golden(std::string(GetParam()) + "_float32");
    const auto engine = golden.engine(*backend_, Precision::fp32());
    const std::vector<Batch> batches = {golden.batch()};
    const UpdateResult result = engine->accumulate_gradients(batches);

    EXPECT_NEAR(result.loss, golden.file().tensor("loss").data<float>()[0], 2e-6);
    for (const OwnedLeaf& leaf : engine->store().owned())
        EXPECT_LE(test::relative_error(leaf.gradient, golden.file().tensor("grad." + leaf.spec->name)), 1e-5)
            << leaf.spec->name;
}

/// A bias of the keys shifts all scores of a query nearly alike, so its gradient is a small difference of
/// large terms, in which roundings show.
double least_cosine(const std::string& leaf) {
    return leaf.ends_with("k_proj.bias") ? 0.998 : 0.999;
}

TEST_P(OneStep, Bfloat16LossAndEveryGradient) {
    const test::GoldenStep golden(std::string(GetParam()) + "_bfloat16");
    for (const Precision& precision : {Precision::pure_bf16(), Precision::with_master(DType::bf16)}) {
        const auto engine = golden.engine(*backend_, precision);
        const std::vector<Batch> batches = {golden.batch()};
        const UpdateResult result = engine->accumulate_gradients(batches);

        EXPECT_NEAR(result.loss, golden.file().tensor("loss").data<float>()[0], 5e-3);
        for (const OwnedLeaf& leaf : engine->store().owned())
            EXPECT_GE(test::cosine(leaf.gradient, golden.file().tensor("grad." + leaf.spec->name)),
                      least_cosine(leaf.spec->name))
                << leaf.spec->name << ", gradients in " << name_of(precision.gradients);
    }
}

TEST_P(OneStep, Fp32ResidualStreamWithBf16Weights) {
    const test::GoldenStep golden(std::string(GetParam()) + "_bfloat16");
    Precision precision = Precision::with_master(DType::bf16);
    precision.residual = DType::f32;
    const auto engine = golden.engine(*backend_, precision);
    const std::vector<Batch> batches = {golden.batch()};
    const UpdateResult result = engine->accumulate_gradients(batches);
    EXPECT_NEAR(result.loss, golden.file().tensor("loss").data<float>()[0], 5e-3);
    for (const OwnedLeaf& leaf : engine->store().owned())
        EXPECT_GE(test::cosine(leaf.gradient, golden.file().tensor("grad." + leaf.spec->name)),
                  least_cosine(leaf.spec->name))
            << leaf.spec->name;
}

TEST_P(OneStep, EveryRecomputePolicyGivesTheSameBits) {
    for (const char* dtype : {"_float32", "_bfloat16"}) {
        const test::GoldenStep golden(GetParam() + std::string(dtype));
        const Precision precision =
            dtype == std::string("_float32") ? Precision::fp32() : Precision::pure_bf16();
        const auto plain = golden.engine(*backend_, precision);
        const std::vector<Batch> batches = {golden.batch(), golden.batch()};
        const UpdateResult expected = plain->accumulate_gradients(batches);
        for (const RecomputePolicy policy :
             {RecomputePolicy{Recompute::selective}, RecomputePolicy{Recompute::selective_mlp},
              RecomputePolicy{Recompute::selective_attention},
              RecomputePolicy{Recompute::selective_attention, 1}, RecomputePolicy{Recompute::full},
              RecomputePolicy{Recompute::full, 1}, RecomputePolicy{Recompute::selective, 1}}) {
            const auto engine = golden.engine(*backend_, precision, policy);
            const UpdateResult result = engine->accumulate_gradients(batches);
            EXPECT_EQ(result.loss, expected.loss);
            EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
            for (std::size_t i = 0; i < engine->store().owned().size(); ++i)
                EXPECT_EQ(test::values(engine->store().owned()[i].gradient),
                          test::values(plain->store().owned()[i].gradient))
                    << engine->store().owned()[i].spec->name;
        }
    }
}

TEST_P(OneStep, EvaluationGivesTheTrainingLoss) {
    const test::GoldenStep golden(std::string(GetParam()) + "_float32");
    const auto engine = golden.engine(*backend_, Precision::fp32(), {Recompute::full});
    const Batch batch = golden.batch();
    const std::vector<std::int32_t> targets = batch.targets();
    const EvaluationResult result = engine->evaluate(batch);
    EXPECT_EQ(result.targets, batch.target_count());
    EXPECT_NEAR(result.mean_loss() + result.balance_loss, golden.file().tensor("loss").data<float>()[0],
                2e-6);

    // transformers' logits tell which token was the likeliest.
    const Tensor logits = golden.file().tensor("logits");  // [B,T,V]
    const std::int64_t vocab = logits.size(2);
    std::int64_t correct = 0;
    for (std::int64_t i = 0; i < batch.tokens(); ++i) {
        const float* row = logits.data<float>() + i * vocab;
        correct += targets[static_cast<std::size_t>(i)] == std::max_element(row, row + vocab) - row;
    }
    EXPECT_EQ(result.correct, correct);
}

INSTANTIATE_TEST_SUITE_P(Llama, OneStep,
                         ::testing::Values("mha", "gqa", "tied_llama3", "biases_odd_head_dim", "gqa_padded",
                                           "mistral", "qwen2", "qwen2_windows", "qwen3",
                                           "qwen3_biases_padded"),
                         [](const auto& model) { return std::string(model.param); });

INSTANTIATE_TEST_SUITE_P(Mixtral, OneStep,
                         ::testing::Values("mixtral_plain_top2", "mixtral_aux_top2", "mixtral_experts2_top1",
                                           "mixtral_experts8_top2_window", "mixtral_padded_aux",
                                           "mixtral_starved_experts"),
                         [](const auto& model) { return std::string(model.param); });

TEST(ExpertModes, GiveTheSameGradients) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("mixtral_aux_top2_float32");
    const std::vector<Batch> batches = {golden.batch()};
    const auto grouped = golden.engine(*backend, Precision::fp32());
    const UpdateResult expected = grouped->accumulate_gradients(batches);
    for (const MoeMode mode : {MoeMode::stacked, MoeMode::all_tokens})
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            const auto engine = golden.engine(*backend, Precision::fp32(), {recompute}, mode);
            const UpdateResult result = engine->accumulate_gradients(batches);
            EXPECT_NEAR(result.loss, expected.loss, 1e-6);
            for (std::size_t i = 0; i < engine->store().owned().size(); ++i) {
                const OwnedLeaf& leaf = engine->store().owned()[i];
                EXPECT_LE(test::relative_error(leaf.gradient, grouped->store().owned()[i].gradient), 1e-5)
                    << leaf.spec->name;
            }
        }
}

/// The same micro-batch twice: its cross-entropy is a mean and does not change; the balance loss is added for
/// each micro-batch, or averaged like the rest up to transformers 4.45.
TEST(ExpertBalance, IsAddedOrAveragedOverMicroBatches) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("mixtral_aux_top2_float32");
    const std::vector<Batch> once = {golden.batch()}, twice = {golden.batch(), golden.batch()};
    TrainEngineOptions options = golden.options(Precision::fp32());
    const auto added = golden.engine(*backend, options);
    const double balance = added->evaluate(once[0]).balance_loss;
    ASSERT_GT(balance, 0.01);
    EXPECT_NEAR(added->accumulate_gradients(twice).loss, added->accumulate_gradients(once).loss + balance,
                1e-5);

    options.compat = HfCompat::v4_43();
    const auto alone = golden.engine(*backend, options), averaged = golden.engine(*backend, options);
    const UpdateResult expected = alone->accumulate_gradients(once);
    EXPECT_NEAR(averaged->accumulate_gradients(twice).loss, expected.loss, 1e-6);
    for (std::size_t i = 0; i < alone->store().owned().size(); ++i)
        EXPECT_LE(
            test::relative_error(averaged->store().owned()[i].gradient, alone->store().owned()[i].gradient),
            1e-5)
            << alone->store().owned()[i].spec->name;
}

TEST(ExpertCounts, ActiveParametersOfMixtral) {
    const ModelConfig config = ModelConfig::from_path(test::example_path("configs/mixtral-8x7b.json"));
    EXPECT_EQ(make_param_spec(config).parameter_count(), 46'702'792'704);
    EXPECT_EQ(active_parameter_count(config), 12'879'925'248);
}

TEST(Batches, PackedSequencesTrainAsIfEachHadARowOfItsOwn) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const Batch source = golden.batch();
    const auto first = [&](std::int64_t from, std::int64_t count) {
        return std::vector<std::int32_t>(source.ids.begin() + from, source.ids.begin() + from + count);
    };
    // Two sequences of 9 and 11 tokens: packed in one row of 24, and as two padded rows of 12.
    std::vector<std::int32_t> packed_ids = first(0, 9), padded_ids = first(0, 9);
    const std::vector<std::int32_t> second = first(9, 11);
    packed_ids.insert(packed_ids.end(), second.begin(), second.end());
    packed_ids.resize(24, 0);
    padded_ids.resize(12, 0);
    padded_ids.insert(padded_ids.end(), second.begin(), second.end());
    padded_ids.resize(24, 0);
    const std::vector<std::vector<std::int32_t>> row_lengths = {{9, 11}};
    const std::vector<std::int32_t> lengths = {9, 11};
    const std::vector<Batch> packed = {Batch::packed(1, 24, packed_ids, packed_ids, row_lengths)};
    const std::vector<Batch> padded = {Batch::right_padded(2, 12, padded_ids, padded_ids, lengths)};
    EXPECT_EQ(packed[0].target_count(), 8 + 10);

    const auto a = golden.engine(*backend, Precision::fp32());
    const auto b = golden.engine(*backend, Precision::fp32());
    EXPECT_NEAR(a->accumulate_gradients(packed).loss, b->accumulate_gradients(padded).loss, 1e-6);
    for (std::size_t i = 0; i < a->store().owned().size(); ++i)
        EXPECT_LE(test::relative_error(a->store().owned()[i].gradient, b->store().owned()[i].gradient), 1e-5);
}

/// Gradients of a row of two documents of which only the second is learned.
std::vector<std::vector<double>> gradients_of_second(const test::GoldenStep& golden, Backend& backend,
                                                     const std::vector<std::int32_t>& first,
                                                     const std::vector<std::int32_t>& second,
                                                     const Precision& precision) {
    std::vector<std::int32_t> ids = first;
    ids.insert(ids.end(), second.begin(), second.end());
    ids.resize(24, 0);
    std::vector<std::int32_t> labels(ids.size(), no_label);
    std::copy(second.begin(), second.end(), labels.begin() + std::ssize(first));
    const std::vector<std::vector<std::int32_t>> lengths = {
        {static_cast<std::int32_t>(first.size()), static_cast<std::int32_t>(second.size())}};
    const std::vector<Batch> batches = {Batch::packed(1, 24, ids, labels, lengths)};
    const auto engine = golden.engine(backend, precision);
    engine->accumulate_gradients(batches);
    std::vector<std::vector<double>> gradients;
    for (const OwnedLeaf& leaf : engine->store().owned()) gradients.push_back(test::values(leaf.gradient));
    return gradients;
}

TEST(Batches, AnotherDocumentOfTheRowChangesNoBitOfAGradient) {
    const auto backend = test::make_test_backend();
    for (const auto& [name, precision] : {std::pair{"gqa_float32", Precision::fp32()},
                                          std::pair{"gqa_bfloat16", Precision::with_master(DType::bf16)}}) {
        const test::GoldenStep golden(name);
        const std::vector<std::int32_t> ids = golden.batch().ids;
        const std::vector<std::int32_t> first(ids.begin(), ids.begin() + 9), other(9, ids[30]),
            second(ids.begin() + 9, ids.begin() + 20);
        ASSERT_NE(first, other);
        const auto a = gradients_of_second(golden, *backend, first, second, precision),
                   b = gradients_of_second(golden, *backend, other, second, precision);
        EXPECT_EQ(a, b) << name;
        const auto changed = gradients_of_second(golden, *backend, first, other, precision);
        EXPECT_NE(a, changed) << name;
    }
}

TEST(Batches, TokenOutsideTheVocabularyIsNamed) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("mha_float32");
    const auto engine = golden.engine(*backend, Precision::fp32());
    Batch batch = golden.batch();
    batch.ids[3] = 5000;
    test::expect_error([&] { engine->evaluate(batch); }, {"token id 5000"});
}

}  // namespace
}  // namespace drover
