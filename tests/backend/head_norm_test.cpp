#include <gtest/gtest.h>

#include "backend/backend_under_test.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"

// A head norm is an RmsNorm whose rows are heads, so it must agree with that on packed copies of its
// operands.

namespace drover::test::head_norm_test {
namespace {

constexpr float eps = 1e-5f;

struct Types {
    DType heads, weight, dweight;
};

std::vector<Types> all_types() {
    std::vector<Types> all = {{DType::f32, DType::f32, DType::f32}, {DType::f32, DType::f32, DType::bf16}};
    for (DType half : activation_types()) {
        if (half == DType::f32) continue;
        all.push_back({half, half, half});
        all.push_back({half, DType::f32, DType::f32});
    }
    return all;
}

/// Columns of a wider matrix, like the heads of the packed q‖k‖v.
struct Packed {
    Tensor matrix;
    std::int64_t first, heads, size;

    Tensor columns() const { return matrix.columns(first, heads * size); }
    Tensor view() const { return columns().split_columns(heads, size); }
};

/// Allowed relative error of a result that is rounded where the other one is.
double tolerance(DType dtype) {
    return dtype == DType::f32 ? 5e-7 : 1.0 / 256 / 16;
}

struct Case {
    std::int64_t tokens, heads, size;
    std::int64_t gap = 16;  ///< columns before or behind the heads
};

void expect_like_rms_norm(const Types& types, const Case& given) {
    const std::int64_t tokens = given.tokens, heads = given.heads, size = given.size;
    SCOPED_TRACE(testing::Message() << name_of(types.heads) << ' ' << name_of(types.weight) << ' ' << tokens
                                    << ' ' << heads << ' ' << size);
    Workbench bench;
    // Operands with different strides and beginnings.
    const auto place = [&](unsigned seed, std::int64_t before, std::int64_t after) {
        const Shape shape = {tokens, before + heads * size + after};
        return Packed{bench.put(random_normal(types.heads, shape, seed, 1.5)), before, heads, size};
    };
    const std::int64_t gap = given.gap;
    const Packed x = place(1, 0, gap), y = place(2, gap, 0), dy = place(3, gap, gap),
                 dx = place(4, 2 * gap, gap);
    const Tensor weight = bench.put(random_normal(types.weight, {size}, 5, 0.3, 1));
    const OwnedTensor before = bench.get(y.matrix);

    // RmsNorm on packed copies, a row for each head.
    const auto rows_of = [&](const Packed& packed) {
        const Tensor copy = bench.make(types.heads, {tokens, heads * size});
        bench.run(Cast{.from = packed.columns(), .to = copy});
        return copy.view({tokens * heads, size});
    };
    const Shape rows = {tokens * heads, size};
    const Tensor right_y = bench.make(types.heads, rows), right_dx = bench.make(types.heads, rows);
    const Tensor rstd = bench.make(DType::f32, {tokens * heads});
    const Tensor right_dweight = bench.make(types.dweight, {size});
    bench.run(RmsNorm{.residual_in = rows_of(x), .weight = weight, .y = right_y, .rstd = rstd, .eps = eps});
    bench.run(RmsNormBackward{.dy = rows_of(dy),
                              .residual_out = rows_of(x),
                              .weight = weight,
                              .rstd = rstd,
                              .dresidual = right_dx,
                              .dweight = right_dweight});

    bench.run(HeadNorm{.x = x.view(), .weight = weight, .y = y.view(), .eps = eps});
    const Tensor dweight = bench.make(types.dweight, {size});
    HeadNormBackward backward{
        .dy = dy.view(), .x = x.view(), .weight = weight, .dx = dx.view(), .dweight = dweight, .eps = eps};
    bench.run(backward);
    const OwnedTensor y_rows = bench.get(rows_of(y)), dx_rows = bench.get(rows_of(dx));
    EXPECT_LE(relative_error(y_rows, bench.get(right_y)), tolerance(types.heads));
    // In heads of two elements the terms of the gradient may nearly cancel.
    EXPECT_LE(relative_error(dx_rows, bench.get(right_dx)), 4 * tolerance(types.heads));
    EXPECT_LE(relative_error(bench.get(dweight), bench.get(right_dweight)), 2 * tolerance(types.dweight));
    // Nothing beside the heads was written.
    EXPECT_EQ(values(bench.get(y.matrix).tensor().columns(0, gap)), values(before.tensor().columns(0, gap)));

    // In place, with the same bits; dweight is added to.
    bench.run(HeadNorm{.x = x.view(), .weight = weight, .y = x.view(), .eps = eps});
    EXPECT_TRUE(same_bits(bench.get(rows_of(x)), y_rows));
    const Packed again = place(1, 0, gap);
    const Tensor twice = bench.make(types.dweight, {size});
    bench.run(Cast{.from = dweight, .to = twice});
    backward.x = again.view();
    backward.dx = dy.view();
    backward.dweight = twice;
    backward.accumulate = true;
    bench.run(backward);
    EXPECT_TRUE(same_bits(bench.get(rows_of(dy)), dx_rows));
    std::vector<double> doubled = bench.values_of(dweight);
    for (double& value : doubled) value *= 2;
    EXPECT_LE(relative_error(bench.values_of(twice), doubled),
              types.dweight == DType::f32 ? 1e-6 : 1.0 / 256);
}

TEST(HeadNorm, AgreesWithRmsNormAtEverySize) {
    for (const Types& types : all_types())
        for (const std::int64_t size : {2, 8, 10, 34, 64, 72, 80, 128, 250, 256})
            expect_like_rms_norm(types, {37, 3, size});  // more heads than are summed at once
}

TEST(HeadNorm, AgreesWithRmsNormForFewAndManyTokens) {
    for (const Types& types : all_types()) {
        expect_like_rms_norm(types, {1, 1, 128});
        expect_like_rms_norm(types, {2, 40, 64});
        expect_like_rms_norm(types, {5, 3, 128, 3});  // not aligned
        // More tokens than slices, and rounds of a GPU's block that not every team has.
        expect_like_rms_norm(types, {tests_use_cuda() ? 5003 : 1003, 5, 128});
    }
}

TEST(HeadNorm, WithoutTokensTheGradientOfTheWeightIsZero) {
    Workbench bench;
    const Tensor none = bench.make(DType::f32, {0, 2, 64}), dweight = bench.make(DType::f32, {64});
    const Tensor weight = bench.put(random_normal(DType::f32, {64}, 1));
    bench.run(HeadNorm{.x = none, .weight = weight, .y = none, .eps = eps});
    HeadNormBackward backward{
        .dy = none, .x = none, .weight = weight, .dx = none, .dweight = dweight, .eps = eps};
    bench.run(backward);
    EXPECT_EQ(bench.values_of(dweight), std::vector<double>(64, 0));
    backward.dweight = weight;
    backward.accumulate = true;
    const OwnedTensor before = bench.get(weight);
    bench.run(backward);
    EXPECT_TRUE(same_bits(bench.get(weight), before));
}

}  // namespace
}  // namespace drover::test::head_norm_test
