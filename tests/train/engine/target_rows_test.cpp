#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "backend/operation_profile.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

// A head that computes only the rows with a target gives what one that computes all rows gives. The reference
// are the same rows one at a time: too few tokens for target rows to pay.

namespace drover {
namespace {

constexpr std::int64_t rows = 8, row_length = 32, tokens = rows * row_length;

/// Whether the label of a position is kept.
using Mask = std::function<bool(std::int64_t row, std::int64_t column)>;

Batch masked(const Mask& has_label, std::int64_t vocab, unsigned seed = 1) {
    std::mt19937 generator(seed);
    std::vector<std::int32_t> ids, labels;
    for (std::int64_t i = 0; i < tokens; ++i) {
        ids.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab)));
        labels.push_back(has_label(i / row_length, i % row_length) ? ids.back() : no_label);
    }
    return Batch::full_rows(rows, row_length, ids, labels);
}

Mask random_mask(int percent, unsigned seed) {
    auto generator = std::make_shared<std::mt19937>(seed);
    return [=](std::int64_t, std::int64_t) { return static_cast<int>((*generator)() % 100) < percent; };
}

struct NamedMask {
    const char* name;
    Mask mask;
};

std::vector<NamedMask> masks() {
    return {
        {"a tenth at random", random_mask(10, 3)},
        {"half at random", random_mask(50, 4)},
        {"ends of rows", [](std::int64_t, std::int64_t column) { return column >= 24; }},
        {"rows without a target", [](std::int64_t row, std::int64_t) { return row == 2 || row == 7; }},
        {"one target", [](std::int64_t row, std::int64_t column) { return row == 5 && column == 9; }},
    };
}

std::vector<Batch> one_at_a_time(const Batch& batch) {
    std::vector<Batch> result;
    for (std::int64_t row = 0; row < batch.rows; ++row) result.push_back(batch.some_rows(row, 1));
    return result;
}

TrainEngineOptions with_rows(TrainEngineOptions options, std::int64_t count) {
    options.model.rows = count;
    options.model.row_length = row_length;
    return options;
}

void expect_same_gradients(const TrainEngine& engine, const TrainEngine& reference, double limit) {
    const auto &actual = engine.store().owned(), &expected = reference.store().owned();
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_LE(test::relative_error(actual[i].gradient, expected[i].gradient), limit)
            << actual[i].spec->name;
}

class TargetRowsOf : public ::testing::TestWithParam<const char*> {
  protected:
    bool is_fp32() const { return std::string_view(GetParam()).ends_with("float32"); }
    Precision precision() const {
        return is_fp32() ? Precision::fp32() : Precision::with_master(DType::bf16);
    }

    const test::GoldenStep golden_{GetParam()};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
};

TEST_P(TargetRowsOf, GiveTheLossGradientsAndGuessesOfAllRows) {
    for (const double smoothing : {0.0, 0.1}) {
        TrainEngineOptions options = golden_.options(precision());
        options.model.label_smoothing = smoothing;
        const auto engine = golden_.engine(*backend_, with_rows(options, rows));
        const auto reference = golden_.engine(*backend_, with_rows(options, 1));
        for (const auto& [name, mask] : masks()) {
            SCOPED_TRACE(testing::Message() << name << ", smoothing " << smoothing);
            const Batch batch = masked(mask, golden_.config().vocab_size);
            ASSERT_GT(TargetRows::count(batch.target_count(), tokens), 0);
            const UpdateResult got = engine->accumulate_gradients({&batch, 1}),
                               expected = reference->accumulate_gradients(one_at_a_time(batch));
            EXPECT_NEAR(got.loss, expected.loss, (is_fp32() ? 1e-6 : 1e-3) * expected.loss);
            expect_same_gradients(*engine, *reference, is_fp32() ? 1e-5 : 1e-2);
            const EvaluationResult evaluated = engine->evaluate(batch),
                                   expected_evaluation = reference->evaluate(batch);
            EXPECT_NEAR(evaluated.loss_sum, expected_evaluation.loss_sum,
                        (is_fp32() ? 1e-6 : 1e-3) * expected_evaluation.loss_sum);
            EXPECT_EQ(evaluated.targets, batch.target_count());
            EXPECT_EQ(evaluated.correct, expected_evaluation.correct);
        }
    }
}

/// A micro-batch without any target adds nothing, first or last in its step; alone its gradients are zero.
TEST_P(TargetRowsOf, MayBeNone) {
    const std::int64_t vocab = golden_.config().vocab_size;
    const auto engine = golden_.engine(*backend_, with_rows(golden_.options(precision()), rows));
    const auto reference = golden_.engine(*backend_, with_rows(golden_.options(precision()), rows));
    const Batch some = masked(random_mask(20, 5), vocab, 1), none = masked(random_mask(0, 6), vocab, 2);
    ASSERT_EQ(none.target_count(), 0);
    const double alone = reference->accumulate_gradients({&some, 1}).loss;
    for (const std::vector<Batch>& step : {std::vector{some, none}, std::vector{none, some}}) {
        EXPECT_DOUBLE_EQ(engine->accumulate_gradients(step).loss, alone);
        expect_same_gradients(*engine, *reference, 0);
    }
    const UpdateResult result = engine->accumulate_gradients({&none, 1});
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.gradient_norm, 0);
    const EvaluationResult evaluated = engine->evaluate(none);
    EXPECT_EQ(evaluated.loss_sum, 0);
    EXPECT_EQ(evaluated.correct, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, TargetRowsOf,
                         ::testing::Values("gqa_float32", "tied_llama3_float32", "gqa_bfloat16"),
                         [](const auto& model) { return std::string(model.param); });

/// With adapters the head's weight has no gradient, but its input has one.
TEST(TargetRows, WorkWithAFrozenHead) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    TrainEngineOptions options = golden.options(Precision::fp32());
    for (const char* module : {"self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"})
        options.model.adapters.weights.push_back(
            {.leaf = fmt::format("model.layers.0.{}.weight", module), .rank = 4, .scale = 2});
    const auto engine = golden.engine(*backend, with_rows(options, rows)),
               reference = golden.engine(*backend, with_rows(options, 1));
    for (TrainEngine* each : {engine.get(), reference.get()}) each->initialize_adapters(1);
    const Batch batch = masked(random_mask(25, 10), golden.config().vocab_size);
    const UpdateResult got = engine->accumulate_gradients({&batch, 1}),
                       expected = reference->accumulate_gradients(one_at_a_time(batch));
    EXPECT_NEAR(got.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_GT(got.gradient_norm, 0);
    int compared = 0;
    for (std::size_t i = 0; i < engine->store().owned().size(); ++i) {
        const OwnedLeaf& leaf = engine->store().owned()[i];
        if (!leaf.spec->name.ends_with("lora_B.weight")) continue;  // B is zero, so A has no gradient yet
        EXPECT_LE(test::relative_error(leaf.gradient, reference->store().owned()[i].gradient), 1e-5)
            << leaf.spec->name;
        ++compared;
    }
    EXPECT_EQ(compared, 3);
}

/// Every guess is right when the labels are the guesses themselves, so ids reach their tokens.
TEST(TargetRows, BringGuessesToTheirTokens) {
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend, with_rows(golden.options(Precision::fp32()), rows));
    Batch batch = masked(random_mask(30, 7), golden.config().vocab_size);
    std::int64_t found = 0;
    // The likeliest id of each position, found by trying all of them there.
    for (std::size_t i = 1; i < batch.labels.size(); i += 83) {
        Batch one = batch;
        std::fill(one.labels.begin(), one.labels.end(), no_label);
        if (static_cast<std::int64_t>(i) % row_length == 0) continue;
        std::int32_t guess = -1;
        for (std::int32_t id = 0; id < golden.config().vocab_size && guess < 0; ++id) {
            one.labels[i] = id;
            if (engine->evaluate(one).correct == 1) guess = id;
        }
        ASSERT_GE(guess, 0) << i;
        batch.labels[i] = guess;
        ++found;
    }
    Batch others = batch;
    for (std::size_t i = 1; i < batch.labels.size(); i += 83) others.labels[i] = no_label;
    EXPECT_EQ(engine->evaluate(batch).correct, engine->evaluate(others).correct + found);
}

/// The products with the vocabulary, three in training and one in evaluation, have as many rows as are
/// needed, and none of the others changes.
TEST(TargetRows, AreTheOnlyOnesComputed) {
    const auto backend = test::make_test_backend({.cuda_graphs = false});
    const test::GoldenStep golden("gqa_float32");
    const auto engine = golden.engine(*backend, with_rows(golden.options(Precision::fp32()), rows));
    const std::int64_t vocab = golden.config().vocab_size;
    const auto flops_of = [&](const std::function<void()>& work) {
        const OperationProfile profile(*backend);
        work();
        double flops = 0;
        for (const OperationTotal& total : profile.totals()) flops += total.cost.flops;
        return flops;
    };
    const Batch few = masked(random_mask(20, 8), vocab), all = masked(random_mask(100, 9), vocab);
    const auto saved_rows = static_cast<double>(tokens - TargetRows::count(few.target_count(), tokens));
    const double product = 2 * saved_rows * static_cast<double>(golden.config().hidden_size * vocab);
    ASSERT_EQ(saved_rows, tokens - 64);
    EXPECT_EQ(flops_of([&] {
                  engine->accumulate_gradients({&all, 1});
              }) - flops_of([&] {
                  engine->accumulate_gradients({&few, 1});
              }),
              3 * product);
    EXPECT_EQ(flops_of([&] { engine->evaluate(all); }) - flops_of([&] { engine->evaluate(few); }), product);
}

/// More target rows than a chunk of logits has.
TEST(TargetRows, MayFillSeveralChunks) {
    const auto backend = test::make_test_backend();
    if (backend->device() != Device::cpu) GTEST_SKIP() << "a GPU's chunks are too large for a test";
    ModelConfig config = test::GoldenStep("gqa_float32").config();
    config.vocab_size = 32768;
    config.num_hidden_layers = 1;
    constexpr std::int64_t many_rows = 72, many = many_rows * row_length;
    const auto make = [&](std::int64_t count) {
        auto engine = std::make_unique<TrainEngine>(
            config, with_rows({.model = {.precision = Precision::fp32(), .recompute = {}}}, count), *backend,
            test::single_mesh());
        engine->allocate();
        engine->initialize_weights(1);
        return engine;
    };
    std::mt19937 generator(1);
    std::vector<std::int32_t> ids, labels;
    for (std::int64_t i = 0; i < many; ++i) {
        ids.push_back(static_cast<std::int32_t>(generator() % 32768));
        labels.push_back(generator() % 4 < 2 ? ids.back() : no_label);
    }
    const Batch batch = Batch::full_rows(many_rows, row_length, ids, labels);
    ASSERT_GT(TargetRows::count(batch.target_count(), many), 1024);
    const auto engine = make(many_rows), reference = make(1);
    const UpdateResult got = engine->accumulate_gradients({&batch, 1}),
                       expected = reference->accumulate_gradients(one_at_a_time(batch));
    EXPECT_NEAR(got.loss, expected.loss, 1e-6 * expected.loss);
    expect_same_gradients(*engine, *reference, 1e-5);
}

/// Steps in which target rows alternate with all rows: only the latter are recorded.
TEST(TargetRows, AreNotRecorded) {
    if (!test::tests_use_cuda()) GTEST_SKIP() << "only a GPU's forward and backward are recorded";
    const test::GoldenStep golden("gqa_bfloat16");
    const std::int64_t vocab = golden.config().vocab_size;
    const auto recording = test::make_test_backend({.cuda_graphs = true}),
               enqueuing = test::make_test_backend({.cuda_graphs = false});
    const TrainEngineOptions options = with_rows(golden.options(Precision::with_master(DType::bf16)), rows);
    const auto recorded = golden.engine(*recording, options), enqueued = golden.engine(*enqueuing, options);
    constexpr int steps = 12;
    for (int step = 0; step < steps; ++step) {
        const auto seed = static_cast<unsigned>(step);
        const std::vector<Batch> batches = {masked(random_mask(100, seed), vocab, seed),
                                            masked(random_mask(15 + 4 * step, seed), vocab, seed + 50)};
        const UpdateResult expected = enqueued->step(batches, 1e-3), got = recorded->step(batches, 1e-3);
        ASSERT_EQ(got.loss, expected.loss) << step;
        ASSERT_EQ(got.gradient_norm, expected.gradient_norm) << step;
    }
    EXPECT_GT(recorded->recorder().replays(), 0);
    EXPECT_LT(recorded->recorder().replays(), steps);
    EXPECT_EQ(test::everything(*recorded), test::everything(*enqueued));
}

}  // namespace
}  // namespace drover
