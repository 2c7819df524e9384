#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/attention_expectations.h"
#include "backend/golden_case.h"
#include "backend/run_settings.h"

namespace drover::test::attention_test {
namespace {

// --------------------------------------------------------------------------------------------------------
// tests

TEST(Attention, Golden) {
    for_each_golden_case("attention", [](const GoldenCase& golden) {
        const Tensor q = golden.tensor("q"), k = golden.tensor("k");
        AttentionBatch batch{.rows = q.size(0),
                             .row_length = q.size(1),
                             .heads = q.size(2),
                             .kv_heads = k.size(2),
                             .head_size = q.size(3),
                             .window = golden["window"].get<std::int64_t>()};
        ASSERT_FLOAT_EQ(batch.scale(), golden["scale"].get<float>());
        if (golden["kind"] != "dense") {
            const Tensor row = golden.tensor("sequence_row"), begin = golden.tensor("sequence_begin");
            const Tensor length = golden.tensor("sequence_length");
            for (std::int64_t i = 0; i < row.size(0); ++i)
                batch.sequences.emplace_back(
                    row.data<std::int32_t>()[i] * batch.row_length + begin.data<std::int32_t>()[i],
                    length.data<std::int32_t>()[i]);
        }
        Workbench bench;
        const AttentionResults found =
            run(bench, batch, q.view(batch.query_shape()), k.view(batch.key_shape()),
                golden.tensor("v").view(batch.key_shape()), golden.tensor("dout").view(batch.query_shape()));
        const double tolerance = golden.is_f32() ? f32_tolerance : bf16_tolerance;
        const auto expect = [&](const Tensor& actual, const char* name) {
            expect_close(batch, actual, values(golden.tensor(name)), tolerance, name);
        };
        expect(found.out, "out");
        expect(found.dq, "dq");
        expect(found.dk, "dk");
        expect(found.dv, "dv");
    });
}

class AttentionShapes : public testing::TestWithParam<AttentionBatch> {};

TEST_P(AttentionShapes, ForwardAndBackward) {
    Workbench bench;
    for (DType dtype : attention_types()) expect_right(bench, GetParam(), dtype);
}

// The heads are chosen so that every number of leftover rows of a tile product occurs.
INSTANTIATE_TEST_SUITE_P(
    Dense, AttentionShapes,
    testing::Values(AttentionBatch{.rows = 1, .row_length = 1, .heads = 1, .kv_heads = 1, .head_size = 1},
                    AttentionBatch{.rows = 3, .row_length = 2, .heads = 4, .kv_heads = 2, .head_size = 3},
                    AttentionBatch{.rows = 2, .row_length = 63, .heads = 4, .kv_heads = 1, .head_size = 10},
                    AttentionBatch{.rows = 2, .row_length = 64, .heads = 4, .kv_heads = 4, .head_size = 16},
                    AttentionBatch{.rows = 2, .row_length = 65, .heads = 2, .kv_heads = 2, .head_size = 31},
                    AttentionBatch{.rows = 1, .row_length = 193, .heads = 4, .kv_heads = 2, .head_size = 33},
                    AttentionBatch{.rows = 1, .row_length = 130, .heads = 1, .kv_heads = 1, .head_size = 128},
                    AttentionBatch{.rows = 1, .row_length = 300, .heads = 2, .kv_heads = 1, .head_size = 8}));

INSTANTIATE_TEST_SUITE_P(
    LargeHeads, AttentionShapes,
    testing::Values(
        AttentionBatch{.rows = 1, .row_length = 67, .heads = 2, .kv_heads = 1, .head_size = 256},
        AttentionBatch{.rows = 1, .row_length = 67, .heads = 2, .kv_heads = 1, .head_size = 257},
        AttentionBatch{.rows = 2, .row_length = 35, .heads = 1, .kv_heads = 1, .head_size = 600, .window = 5},
        AttentionBatch{.rows = 1, .row_length = 35, .heads = 1, .kv_heads = 1, .head_size = 1024}));

INSTANTIATE_TEST_SUITE_P(
    Windows, AttentionShapes,
    testing::Values(
        AttentionBatch{.rows = 2, .row_length = 70, .heads = 2, .kv_heads = 1, .head_size = 8, .window = 1},
        AttentionBatch{.rows = 1, .row_length = 200, .heads = 2, .kv_heads = 2, .head_size = 8, .window = 2},
        AttentionBatch{.rows = 1, .row_length = 200, .heads = 2, .kv_heads = 1, .head_size = 8, .window = 37},
        AttentionBatch{.rows = 1, .row_length = 200, .heads = 1, .kv_heads = 1, .head_size = 8, .window = 64},
        AttentionBatch{
            .rows = 1, .row_length = 260, .heads = 1, .kv_heads = 1, .head_size = 8, .window = 129},
        AttentionBatch{
            .rows = 2, .row_length = 90, .heads = 1, .kv_heads = 1, .head_size = 8, .window = 1000}));

INSTANTIATE_TEST_SUITE_P(
    Sequences, AttentionShapes,
    testing::Values(
        // Right padding, with one empty row and full rows.
        AttentionBatch{.rows = 4,
                       .row_length = 70,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_size = 16,
                       .sequences = Ranges{{0, 70}, {70, 33}, {140, 0}, {210, 1}}},
        AttentionBatch{.rows = 2,
                       .row_length = 100,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_size = 8,
                       .sequences = Ranges{{0, 0}, {100, 0}}},
        // Packing, with row tails in no sequence and empty sequences among the others.
        AttentionBatch{
            .rows = 2,
            .row_length = 150,
            .heads = 4,
            .kv_heads = 1,
            .head_size = 8,
            .sequences = Ranges{{0, 5}, {5, 1}, {6, 0}, {6, 100}, {110, 40}, {150, 2}, {170, 100}, {270, 0}}},
        AttentionBatch{.rows = 1,
                       .row_length = 300,
                       .heads = 2,
                       .kv_heads = 2,
                       .head_size = 33,
                       .window = 20,
                       .sequences = Ranges{{3, 7}, {20, 90}, {110, 65}, {175, 64}, {239, 1}, {260, 39}}},
        AttentionBatch{.rows = 1,
                       .row_length = 64,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_size = 5,
                       .sequences = Ranges{{0, 1}, {1, 1}, {2, 1}, {3, 2}, {60, 4}}}));

/// Heads of sizes found in models.
INSTANTIATE_TEST_SUITE_P(
    Models, AttentionShapes,
    testing::Values(
        AttentionBatch{.rows = 2, .row_length = 200, .heads = 8, .kv_heads = 2, .head_size = 64},
        AttentionBatch{.rows = 1, .row_length = 257, .heads = 4, .kv_heads = 4, .head_size = 128},
        AttentionBatch{
            .rows = 2, .row_length = 256, .heads = 4, .kv_heads = 1, .head_size = 64, .window = 100},
        AttentionBatch{.rows = 3,
                       .row_length = 200,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_size = 128,
                       .sequences = Ranges{{0, 77}, {200, 200}, {400, 129}}},
        AttentionBatch{.rows = 2,
                       .row_length = 192,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_size = 64,
                       .window = 50,
                       .sequences = Ranges{{0, 64}, {64, 100}, {192, 65}, {257, 127}}}));

/// No reads or writes go beyond the last token, wherever the last sequence ends in a tile.
TEST(Attention, WhatStandsBehindTheTokensDoesNotMatter) {
    const AttentionBatch rows{.rows = 2, .row_length = 100, .heads = 4, .kv_heads = 2, .head_size = 64};
    AttentionBatch padded = rows, packed = rows;
    padded.sequences = Ranges{{0, 30}, {100, 100}};
    packed.sequences = Ranges{{0, 30}, {30, 70}, {100, 33}, {140, 60}};
    Workbench bench;
    for (DType dtype : attention_types())
        for (const AttentionBatch& batch : {rows, padded, packed}) {
            const AttentionInputs inputs(batch, dtype, 21);
            const AttentionResults alone = run(bench, batch, inputs),
                                   followed = run(bench, batch, inputs, 128);
            EXPECT_TRUE(same_bits(alone.out, followed.out)) << name_of(dtype);
            EXPECT_TRUE(same_bits(alone.dq, followed.dq)) << name_of(dtype);
            EXPECT_TRUE(same_bits(alone.dk, followed.dk)) << name_of(dtype);
            EXPECT_TRUE(same_bits(alone.dv, followed.dv)) << name_of(dtype);
            for (double x : values(followed.behind)) ASSERT_TRUE(std::isnan(x)) << name_of(dtype);
        }
}

/// Working memory is reused as it is; here it contains NaN.
TEST(Attention, WhatEarlierOperationsLeftDoesNotMatter) {
    const AttentionBatch earlier{.rows = 128, .row_length = 64, .heads = 64, .kv_heads = 64, .head_size = 1};
    AttentionBatch padded{.rows = 3, .row_length = 200, .heads = 4, .kv_heads = 2, .head_size = 64};
    padded.sequences = Ranges{{0, 77}, {200, 200}, {400, 129}};
    AttentionInputs broken(earlier, DType::f32, 5);
    std::memset(broken.dout.tensor().raw(), 0xFF, broken.dout.tensor().bytes());
    for (DType dtype : attention_types()) {
        Workbench bench;
        run(bench, earlier, broken);
        expect_right(bench, padded, dtype);
    }
}

/// exp of large scores must not overflow, and not all weights may vanish.
TEST(Attention, LargeScores) {
    const AttentionBatch batch{.rows = 1, .row_length = 100, .heads = 1, .kv_heads = 1, .head_size = 8};
    Workbench bench;
    AttentionInputs inputs(batch, DType::f32, 3);
    for (std::int64_t i = 0; i < inputs.q.tensor().numel(); ++i) inputs.q.tensor().data<float>()[i] *= 1000.f;
    const AttentionReference expected(batch, inputs);
    const AttentionResults found = run(bench, batch, inputs);
    // Scores of some thousands have an absolute error of about 1e-4, and so do weights and results.
    EXPECT_LE(relative_error(values(found.out), expected.out), 1e-3);
    EXPECT_LE(relative_error(values(found.lse), expected.lse), 1e-6);
    EXPECT_LE(relative_error(values(found.dv), expected.dv), 1e-3);
}

/// The derivative of Σ dout·out along a random direction, against central differences of the forward pass.
TEST(Attention, BackwardIsTheDerivativeOfForward) {
    const AttentionBatch batch{.rows = 1,
                               .row_length = 80,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_size = 17,
                               .window = 50,
                               .sequences = Ranges{{0, 70}, {72, 7}}};
    Workbench bench;
    AttentionInputs inputs(batch, DType::f32, 5);
    const AttentionResults found = run(bench, batch, inputs);
    const auto loss = [&] {
        const std::vector<double> out = values(run(bench, batch, inputs).out), dout = values(inputs.dout);
        double sum = 0;
        for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
        return sum;
    };
    const auto expect_derivative = [&](OwnedTensor& x, const Tensor& gradient, const char* what) {
        const OwnedTensor middle = OwnedTensor::copy_of(x),
                          direction = random_normal(DType::f32, middle.tensor().shape(), 9);
        const auto loss_at = [&](float distance) {
            for (std::int64_t i = 0; i < middle.tensor().numel(); ++i)
                x.tensor().data<float>()[i] =
                    middle.tensor().data<float>()[i] + distance * direction.tensor().data<float>()[i];
            return loss();
        };
        const float step = 1e-2f;
        const double ahead = loss_at(step), behind = loss_at(-step);
        loss_at(0);
        double predicted = 0, norm = 0;
        for (std::int64_t i = 0; i < gradient.numel(); ++i) {
            const double g = gradient.data<float>()[i], d = direction.tensor().data<float>()[i];
            predicted += g * d;
            norm += g * g;
        }
        // A random direction may be nearly orthogonal to the gradient, so the error is measured against its
        // norm.
        EXPECT_NEAR((ahead - behind) / (2 * step), predicted, 1e-3 * std::sqrt(norm)) << what;
        EXPECT_GT(norm, 1) << what;
    };
    expect_derivative(inputs.q, found.dq, "dq");
    expect_derivative(inputs.k, found.dk, "dk");
    expect_derivative(inputs.v, found.dv, "dv");
}

const AttentionBatch& larger_batch() {
    static const AttentionBatch batch{.rows = 2,
                                      .row_length = 300,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .head_size = 24,
                                      .window = 150,
                                      .sequences = Ranges{{0, 290}, {300, 100}, {400, 180}}};
    return batch;
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
    for (DType dtype : activation_types()) {
        const AttentionInputs inputs(larger_batch(), dtype, 7);
        const auto with_threads = [&](int count) {
            const Threads threads(count);
            Workbench bench;
            return run(bench, larger_batch(), inputs);
        };
        const AttentionResults one = with_threads(1);
        for (int count : {2, 3}) {
            const AttentionResults several = with_threads(count);
            EXPECT_TRUE(same_bits(one.out, several.out) && same_bits(one.lse, several.lse)) << count;
            EXPECT_TRUE(same_bits(one.dq, several.dq)) << count;
            EXPECT_TRUE(same_bits(one.dk, several.dk) && same_bits(one.dv, several.dv)) << count;
        }
    }
}

TEST(Attention, InstructionSetsAgree) {
    const std::vector<CpuInstructions> wider = wider_instruction_sets();
    if (wider.empty()) GTEST_SKIP() << "this processor has one instruction set only";
    for (DType dtype : {DType::f32, DType::bf16}) {
        const AttentionInputs inputs(larger_batch(), dtype, 7);
        const auto with_instructions = [&](CpuInstructions instructions) {
            Workbench bench(make_cpu_backend(settings_with(instructions)));
            return run(bench, larger_batch(), inputs);
        };
        const AttentionResults narrow = with_instructions(CpuInstructions::avx2);
        // One of them rounds weights to bf16 before it multiplies them.
        const double tolerance = dtype == DType::f32 ? 1e-6 : bf16_tolerance;
        for (const CpuInstructions instructions : wider) {
            const int name = static_cast<int>(instructions);
            const AttentionResults wide = with_instructions(instructions);
            EXPECT_LE(relative_error(narrow.out, wide.out), tolerance) << name;
            EXPECT_LE(relative_error(narrow.lse, wide.lse), 1e-6) << name;
            EXPECT_LE(relative_error(narrow.dq, wide.dq), tolerance) << name;
            EXPECT_LE(relative_error(narrow.dk, wide.dk), tolerance) << name;
            EXPECT_LE(relative_error(narrow.dv, wide.dv), tolerance) << name;
        }
    }
}

}  // namespace
}  // namespace drover::test::attention_test
