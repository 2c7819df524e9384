#include <gtest/gtest.h>

#include "backend/backend_under_test.h"

// Wrong operands are our own bugs: the message names the operation and the operand, and the program aborts.

namespace drover::test::checks_test {
namespace {

class ChecksDeathTest : public testing::Test {
  protected:
    // Other tests leave worker threads running, which a plain fork does not survive.
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

    Workbench bench;
};

TEST_F(ChecksDeathTest, ShapeTypeAndAbsence) {
    const Tensor f32 = bench.make(DType::f32, {3, 5}), i32 = bench.make(DType::i32, {3, 5});
    const Tensor weight = bench.make(DType::f32, {5}), rstd = bench.make(DType::f32, {3});
    RmsNorm norm{.residual_in = f32, .weight = weight, .y = f32, .rstd = rstd};
    norm.residual_in = bench.make(DType::f32, {3, 4});
    EXPECT_DEATH(bench.run(norm), "rms_norm: residual_in is float32\\[3, 4\\], expected \\[3, 5\\]");
    norm.residual_in = f32;
    norm.y = i32;
    EXPECT_DEATH(bench.run(norm), "rms_norm: y is int32\\[3, 5\\], expected float32 or bfloat16");
    norm.y = weight;
    EXPECT_DEATH(bench.run(norm), "rms_norm: y is float32\\[5\\], expected 2 dimensions");
    norm.y = f32;
    norm.x = f32;
    EXPECT_DEATH(bench.run(norm), "rms_norm: residual_out is absent");
}

TEST_F(ChecksDeathTest, RelationsBetweenOperands) {
    const Tensor f32 = bench.make(DType::f32, {4, 6}), bf16 = bench.make(DType::bf16, {4, 6});
    EXPECT_DEATH(bench.run(Gemm{.a = f32, .b = bf16, .c = f32}),
                 "gemm: b is bfloat16\\[4, 6\\], expected float32");
    EXPECT_DEATH(bench.run(Gemm{.a = f32, .b = f32, .c = f32}),
                 "gemm: b is float32\\[4, 6\\], expected \\[6, 6\\]");
    EXPECT_DEATH(bench.run(Swiglu{.gate_up = f32, .y = f32}),
                 "swiglu: gate_up is float32\\[4, 6\\], expected \\[4, 12\\]");
    EXPECT_DEATH(bench.run(Add{.into = f32.columns(0, 2), .x = f32.columns(2, 2)}), "add: into .*is strided");
    const Tensor odd = bench.make(DType::f32, {2, 1, 5}), table = bench.make(DType::f32, {2, 2});
    EXPECT_DEATH(
        bench.run(Rope{.x = odd, .cosine = table, .sine = table, .positions = bench.make(DType::i32, {2})}),
        "rope: x is float32\\[2, 1, 5\\], expected an even head size");
    const Tensor large = bench.make(DType::f32, {2, 1, 258}), weight = bench.make(DType::f32, {258});
    EXPECT_DEATH(bench.run(HeadNorm{.x = large, .weight = weight, .y = large}),
                 "head_norm: x is float32\\[2, 1, 258\\], expected an even head size from 2 to 256");
}

TEST_F(ChecksDeathTest, AttentionAndOptimizer) {
    const Tensor q = bench.make(DType::f32, {6, 3, 8}), kv = bench.make(DType::f32, {6, 2, 8});
    Attention attention{.q = q,
                        .k = kv,
                        .v = kv,
                        .out = bench.make(DType::f32, {6, 3, 8}),
                        .lse = bench.make(DType::f32, {2, 3, 3}),
                        .sequences = {.rows = 2, .row_length = 3}};
    EXPECT_DEATH(bench.run(attention), "attention: 3 query heads cannot share 2 key/value heads");
    attention.k = attention.v = q;
    attention.sequences.rows = 1;
    EXPECT_DEATH(bench.run(attention),
                 "attention: sequences cover 1 rows of 3 tokens, but there are 6 tokens");
    const Tensor p = bench.make(DType::f32, {4}), scalars = bench.make(DType::f32, {StepScalar::count});
    const AdamWLeaf leaves[] = {
        {.param = p, .gradient = bench.make(DType::f32, {5}), .exp_avg = p, .exp_avg_sq = p}};
    EXPECT_DEATH(bench.run(AdamW{.leaves = leaves, .scalars = scalars}),
                 "adamw: gradient is float32\\[5\\], but param is float32\\[4\\]");
}

TEST_F(ChecksDeathTest, Fp8) {
    const Tensor x = bench.make(DType::f32, {5, 32}), one = bench.make(DType::f32, {1});
    EXPECT_DEATH(bench.run(AbsoluteMaximum{.x = x, .maximum = bench.make(DType::f32, {2})}),
                 "absolute_maximum: maximum is float32\\[2\\], expected \\[1\\]");
    Quantise quantise{.x = x, .maximum = one, .y = x, .scale = one};
    EXPECT_DEATH(bench.run(quantise), "quantise: y is float32\\[5, 32\\], expected float8_e4m3fn");
    quantise.y = {};
    quantise.transposed = bench.make(DType::f8, {32, 5});
    EXPECT_DEATH(bench.run(quantise), "quantise: transposed has another shape");
    const Tensor narrow = bench.make(DType::f8, {16, 24}), wide = bench.make(DType::f8, {16, 32});
    EXPECT_DEATH(bench.run(Fp8Transpose{.x = narrow, .y = bench.make(DType::f8, {24, 16})}),
                 "fp8_transpose: sides must be multiples of 16");
    EXPECT_DEATH(bench.run(Fp8Transpose{.x = wide, .y = wide}),
                 "fp8_transpose: y is float8_e4m3fn\\[16, 32\\], expected \\[32, 16\\]");
    Fp8Gemm product{
        .a = narrow, .b = narrow, .c = bench.make(DType::f32, {16, 16}), .scale_a = one, .scale_b = one};
    EXPECT_DEATH(bench.run(product), "fp8_gemm: K and N must be multiples of 16");
    product.a = wide;
    EXPECT_DEATH(bench.run(product), "fp8_gemm: b is float8_e4m3fn\\[16, 24\\], expected \\[16, 32\\]");
    product.b = wide;
    product.scales_a = product.scales_b = Fp8Scales::rows;
    EXPECT_DEATH(bench.run(product), "fp8_gemm: scale_a is float32\\[1\\], expected \\[1, 16\\]");
    product.fast = true;
    EXPECT_DEATH(bench.run(product), "fp8_gemm: no such product");
    QuantiseBlocks blocks{.x = x, .blocks = Fp8Scales::rows, .y = bench.make(DType::f8, {5, 32})};
    EXPECT_DEATH(bench.run(blocks), "quantise_blocks: y is float8_e4m3fn\\[5, 32\\], expected \\[8, 32\\]");
    blocks.blocks = Fp8Scales::one;
    EXPECT_DEATH(bench.run(blocks), "quantise_blocks: no such blocks");
}

TEST_F(ChecksDeathTest, AnotherDevice) {
    float number = 0;
    const Device other = bench.backend().device() == Device::cpu ? Device::cuda : Device::cpu;
    const Tensor elsewhere(&number, DType::f32, {1}, other);
    EXPECT_DEATH(bench.run(Fill{.x = elsewhere, .value = 0}), "fill: x is on another device");
}

}  // namespace
}  // namespace drover::test::checks_test
