#include <gtest/gtest.h>

#include "backend/backend_under_test.h"

namespace drover::operation_cost_test {
namespace {

using test::Workbench;

TEST(OperationCost, OfAGemm) {
    Workbench bench;
    const Tensor x = bench.make(DType::bf16, {5, 7}), weight = bench.make(DType::bf16, {3, 7});
    const Tensor y = bench.make(DType::f32, {5, 3}), dweight = bench.make(DType::f32, {3, 7});

    const OperationCost forward = Gemm::forward(x, weight, y, bench.make(DType::f32, {3})).cost();
    EXPECT_EQ(forward.name, "gemm forward");
    EXPECT_EQ(forward.flops, 2 * 5 * 3 * 7);
    EXPECT_EQ(forward.bytes, 2 * 5 * 7 + 2 * 3 * 7 + 4 * 5 * 3 + 4 * 3);
    EXPECT_EQ(forward.arithmetic, DType::bf16);

    const Tensor dy = bench.make(DType::bf16, {5, 3});
    EXPECT_EQ(Gemm::data_gradient(dy, weight, x).cost().flops, forward.flops);
    EXPECT_EQ(Gemm::data_gradient(dy, weight, x).cost().name, "gemm data gradient");
    const OperationCost gradient = Gemm::weight_gradient(dy, x, dweight, false).cost();
    EXPECT_EQ(gradient.name, "gemm weight gradient");
    EXPECT_EQ(gradient.flops, forward.flops);
    EXPECT_EQ(Gemm::weight_gradient(dy, x, dweight, true).cost().bytes, gradient.bytes + 4 * 3 * 7);
}

TEST(OperationCost, OfAGroupedGemmIsThatOfItsRows) {
    Workbench bench;
    const Tensor x = bench.make(DType::f32, {9, 4}), weights = bench.make(DType::f32, {3 * 6, 4});
    const Tensor y = bench.make(DType::f32, {9, 6}), offsets = bench.make(DType::i32, {4});
    using Use = GroupedGemm::Use;
    for (const GroupedGemm& product :
         {GroupedGemm{.use = Use::forward, .a = x, .b = weights, .c = y, .offsets = offsets},
          GroupedGemm{.use = Use::data_gradient, .a = y, .b = weights, .c = x, .offsets = offsets},
          GroupedGemm{.use = Use::weight_gradient, .a = y, .b = x, .c = weights, .offsets = offsets}})
        EXPECT_EQ(product.cost().flops, 2 * 9 * 4 * 6) << product.cost().name;
}

TEST(OperationCost, OfAttentionCountsThePairsThatAreSeen) {
    Workbench bench;
    const std::int64_t rows = 2, length = 5, heads = 4, size = 8;
    const Tensor q = bench.make(DType::f32, {rows * length, heads, size});
    const Tensor kv = bench.make(DType::f32, {rows * length, 2, size});
    Attention attention{.q = q,
                        .k = kv,
                        .v = kv,
                        .out = q,
                        .lse = bench.make(DType::f32, {rows, heads, length}),
                        .sequences = {.rows = rows, .row_length = length}};
    EXPECT_EQ(attention.cost().flops, 4 * size * rows * heads * (1 + 2 + 3 + 4 + 5));
    attention.window = 2;
    EXPECT_EQ(attention.cost().flops, 4 * size * rows * heads * (1 + 2 + 2 + 2 + 2));
    attention.window = 50;
    EXPECT_EQ(attention.cost().flops, 4 * size * rows * heads * (1 + 2 + 3 + 4 + 5));
    const AttentionBackward backward{.q = q,
                                     .k = kv,
                                     .v = kv,
                                     .out = q,
                                     .lse = attention.lse,
                                     .dout = q,
                                     .dq = q,
                                     .dk = kv,
                                     .dv = kv,
                                     .sequences = attention.sequences};
    EXPECT_EQ(backward.cost().flops, 10 * size * rows * heads * (1 + 2 + 3 + 4 + 5));
}

TEST(OperationCost, OfMemoryBoundOperationsIsWhatTheyTouch) {
    Workbench bench;
    const Tensor x = bench.make(DType::bf16, {6, 10}), y = bench.make(DType::bf16, {6, 5});
    EXPECT_EQ((Swiglu{.gate_up = x, .y = y}).cost().bytes, 2 * 60 + 2 * 30);
    EXPECT_EQ((Swiglu{.gate_up = x, .y = y}).cost().flops, 0);
    EXPECT_EQ((Add{.into = x, .x = x}).cost().bytes, 3 * 2 * 60);

    const Tensor moment = bench.make(DType::f32, {6, 10});
    const AdamWLeaf leaf{
        .param = x, .gradient = x, .exp_avg = moment, .exp_avg_sq = moment, .master = moment};
    const std::vector<AdamWLeaf> leaves = {leaf, leaf};
    EXPECT_EQ((AdamW{.leaves = leaves, .scalars = moment}).cost().bytes, 2 * (3 * 2 * 60 + 6 * 4 * 60));
}

TEST(MachinePeaks, RatesAreHeldAgainstThePeakOfTheirKind) {
    const MachinePeaks peaks{.fp32_flops = 100, .bf16_flops = 400, .bandwidth = 10};
    const OperationRate product =
        rate_of({.name = "", .flops = 100, .bytes = 1000, .arithmetic = DType::bf16}, 0.5, peaks);
    EXPECT_TRUE(product.arithmetic);
    EXPECT_EQ(product.per_second, 200);
    EXPECT_EQ(product.of_peak, 0.5);
    const OperationRate copy = rate_of({.name = "", .bytes = 5}, 2, peaks);
    EXPECT_FALSE(copy.arithmetic);
    EXPECT_EQ(copy.of_peak, 0.25);
}

TEST(MachinePeaks, AreMeasured) {
    const MachinePeaks peaks = test::make_test_backend()->measure_peaks();
    EXPECT_GT(peaks.fp32_flops, 0);
    EXPECT_GT(peaks.bf16_flops, 0);
    EXPECT_GT(peaks.bandwidth, 0);
}

}  // namespace
}  // namespace drover::operation_cost_test
