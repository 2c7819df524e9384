#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "backend/backend_under_test.h"
#include "backend/golden_case.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"

namespace drover::test::gemm_test {
namespace {

/// Sums in fp32 of up to a few thousand products, relative to the norm of the result.
constexpr double sum_tolerance = 2e-6;

/// fp32 may differ from the exact result by the order of its sums, 16-bit types by one more rounding.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, DType output,
                  const char* what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    if (output == DType::f32) {
        EXPECT_LE(relative_error(actual, expected), sum_tolerance) << what;
        return;
    }
    double norm = 0;
    for (double x : expected) norm += x * x;
    const double sum_error = 8 * sum_tolerance * std::sqrt(norm / static_cast<double>(expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        // Half a unit in the last of bf16's eight digits, or f16's eleven, of the larger number if a power of
        // two lies between.
        const int digits_behind = output == DType::f16 ? 10 : 7;
        const double unit =
            std::exp2(std::logb(std::max(std::abs(expected[i]), std::abs(actual[i]))) - digits_behind);
        ASSERT_LE(std::abs(actual[i] - expected[i]), unit / 2 + sum_error) << what << " at " << i;
    }
}

TEST(Gemm, Golden) {
    for_each_golden_case("gemm", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor x = bench.put(golden.tensor("x")), w = bench.put(golden.tensor("w"));
        const Tensor dy = bench.put(golden.tensor("dy"));
        const Tensor bias = golden["has_bias"].get<bool>() ? bench.put(golden.tensor("bias")) : Tensor();
        for (DType output : {DType::f32, golden.dtype()}) {
            const Tensor y = bench.make(output, dy.shape()), dx = bench.make(output, x.shape());
            const Tensor dw = bench.make(output, w.shape());
            bench.run(Gemm::forward(x, w, y, bias));
            bench.run(Gemm::data_gradient(dy, w, dx));
            bench.run(Gemm::weight_gradient(dy, x, dw, false));
            expect_close(bench.values_of(y), values(golden.tensor("y")), output, "y");
            expect_close(bench.values_of(dx), values(golden.tensor("dx")), output, "dx");
            expect_close(bench.values_of(dw), values(golden.tensor("dw")), output, "dw");
        }
    });
}

/// A product with everything that can vary.
struct Variant {
    std::int64_t rows, columns, depth;
    DType input = DType::f32, output = DType::f32;
    bool transpose_a = false, transpose_b = false, accumulate = false;
    std::optional<DType> bias;
    std::int64_t gap = 0;  ///< columns on either side of every matrix that are not part of the operands

    std::string text() const {
        return std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(depth) + " " +
               std::string(name_of(input)) + " to " + std::string(name_of(output)) +
               (transpose_a ? " a'" : "") + (transpose_b ? " b'" : "") + (accumulate ? " accumulate" : "") +
               (bias ? " bias " + std::string(name_of(*bias)) : "") + " gap " + std::to_string(gap);
    }
};

/// Random operands of a variant on the device; the matrices are the middle columns of wider ones.
struct Operands {
    Gemm gemm;
    Tensor whole_c;
    std::vector<double> c_before;

    Operands(Workbench& bench, const Variant& v, unsigned seed) {
        const auto matrix = [&](std::int64_t rows, std::int64_t columns, DType dtype) {
            return bench.put(random_normal(dtype, {rows, columns + 2 * v.gap}, ++seed));
        };
        const auto middle = [&](const Tensor& whole) {
            return whole.columns(v.gap, whole.size(1) - 2 * v.gap);
        };
        const Tensor a = v.transpose_a ? matrix(v.depth, v.rows, v.input) : matrix(v.rows, v.depth, v.input);
        const Tensor b =
            v.transpose_b ? matrix(v.columns, v.depth, v.input) : matrix(v.depth, v.columns, v.input);
        whole_c = matrix(v.rows, v.columns, v.output);
        c_before = bench.values_of(whole_c);
        gemm = {.a = middle(a),
                .b = middle(b),
                .c = middle(whole_c),
                .bias = v.bias ? bench.put(random_normal(*v.bias, {v.columns}, ++seed)) : Tensor(),
                .transpose_a = v.transpose_a,
                .transpose_b = v.transpose_b,
                .accumulate = v.accumulate};
    }
};

/// The same in f64. Operands must be readable by the host.
std::vector<double> reference(const Operands& operands, std::int64_t gap) {
    const Gemm& gemm = operands.gemm;
    const std::int64_t rows = gemm.c.size(0), columns = gemm.c.size(1),
                       depth = gemm.a.size(gemm.transpose_a ? 0 : 1);
    const std::vector<double> a = values(gemm.a), b = values(gemm.b), before = operands.c_before;
    const std::vector<double> bias = gemm.bias ? values(gemm.bias) : std::vector<double>();
    const auto at = [](const std::vector<double>& matrix, std::int64_t index) {
        return matrix[static_cast<std::size_t>(index)];
    };
    // The whole wide matrix, so that a write outside the operand shows.
    std::vector<double> result = before;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
            const std::int64_t index = i * (columns + 2 * gap) + gap + j;
            double sum = (gemm.accumulate ? at(before, index) : 0) + (gemm.bias ? at(bias, j) : 0);
            for (std::int64_t k = 0; k < depth; ++k)
                sum += at(a, gemm.transpose_a ? k * rows + i : i * depth + k) *
                       at(b, gemm.transpose_b ? j * depth + k : k * columns + j);
            result[static_cast<std::size_t>(index)] = sum;
        }
    return result;
}

void expect_right(Workbench& bench, const Variant& variant, unsigned seed) {
    SCOPED_TRACE(variant.text());
    const Operands operands(bench, variant, seed);
    bench.run(operands.gemm);
    const std::vector<double> actual = bench.values_of(operands.whole_c),
                              expected = reference(operands, variant.gap);
    expect_close(actual, expected, variant.output, "c");
    const std::int64_t width = variant.columns + 2 * variant.gap;
    const std::vector<double>& before = operands.c_before;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const std::int64_t column = static_cast<std::int64_t>(i) % width;
        if (column < variant.gap || column >= width - variant.gap) {
            ASSERT_EQ(actual[i], before[i]) << "beside c";
        }
    }
}

TEST(Gemm, EveryVariantOfAwkwardShapes) {
    Workbench bench;
    std::mt19937 generator(7);
    const auto one_of = [&](auto... choices) {
        const std::common_type_t<decltype(choices)...> all[] = {choices...};
        return all[generator() % sizeof...(choices)];
    };
    unsigned seed = 0;
    std::vector<std::pair<DType, DType>> types;
    for (DType input : activation_types()) {
        types.emplace_back(input, DType::f32);
        if (input != DType::f32) types.emplace_back(input, input);
    }
    for (bool transpose_a : {false, true})
        for (bool transpose_b : {false, true})
            for (bool accumulate : {false, true})
                for (auto [input, output] : types)
                    for (std::optional<DType> bias :
                         {std::optional<DType>(), std::optional(DType::f32), std::optional(input)})
                        expect_right(bench,
                                     {.rows = one_of(1, 2, 7, 17, 33, 64, 130),
                                      .columns = one_of(1, 3, 16, 31, 65, 100),
                                      .depth = one_of(1, 2, 5, 16, 33, 127),
                                      .input = input,
                                      .output = output,
                                      .transpose_a = transpose_a,
                                      .transpose_b = transpose_b,
                                      .accumulate = accumulate,
                                      .bias = bias,
                                      .gap = one_of(0, 1, 8)},
                                     seed += 10);
}

TEST(Gemm, SeveralTilesAndPiecesOfDepth) {
    Workbench bench;
    for (DType input : activation_types())
        for (bool transpose : {false, true}) {
            expect_right(bench,
                         {.rows = 530,
                          .columns = 290,
                          .depth = 37,
                          .input = input,
                          .output = input,
                          .transpose_a = transpose,
                          .transpose_b = !transpose,
                          .accumulate = true,
                          .bias = DType::f32,
                          .gap = 3},
                         1000);
            expect_right(bench,
                         {.rows = 140,
                          .columns = 33,
                          .depth = 1100,
                          .input = input,
                          .transpose_a = transpose,
                          .transpose_b = transpose,
                          .accumulate = true},
                         2000);
            expect_right(bench,
                         {.rows = 1,
                          .columns = 700,
                          .depth = 512,
                          .input = input,
                          .transpose_b = transpose,
                          .bias = input},
                         3000);
        }
}

/// Row strides of whole pages, which some kernels must avoid.
TEST(Gemm, RowsOfPages) {
    Workbench bench;
    for (DType input : activation_types()) {
        expect_right(bench, {.rows = 40, .columns = 1024, .depth = 520, .input = input, .accumulate = true},
                     1);
        expect_right(bench,
                     {.rows = 1024,
                      .columns = 33,
                      .depth = 40,
                      .input = input,
                      .output = input,
                      .transpose_a = true,
                      .transpose_b = true,
                      .bias = DType::f32},
                     2);
    }
}

TEST(Gemm, WithoutElements) {
    Workbench bench;
    for (DType dtype : activation_types()) {
        for (bool accumulate : {false, true})
            for (std::optional<DType> bias : {std::optional<DType>(), std::optional(dtype)})
                expect_right(bench,
                             {.rows = 3,
                              .columns = 5,
                              .depth = 0,
                              .input = dtype,
                              .output = dtype,
                              .accumulate = accumulate,
                              .bias = bias,
                              .gap = 2},
                             1);
        expect_right(bench, {.rows = 0, .columns = 5, .depth = 4, .input = dtype, .output = dtype, .gap = 1},
                     1);
        expect_right(bench, {.rows = 4, .columns = 0, .depth = 4, .input = dtype, .output = dtype, .gap = 1},
                     1);
    }
}

TEST(Gemm, InfinityAndNanPassThrough) {
    Workbench bench;
    const float infinity = std::numeric_limits<float>::infinity();
    for (DType dtype : activation_types()) {
        const float left[] = {1.f, infinity, 2.f, std::nanf("")}, right[] = {1.f, 1.f};
        const Tensor a = bench.put(Tensor::of(left, {2, 2}), dtype);
        const Tensor b = bench.put(Tensor::of(right, {2, 1}), dtype), c = bench.make(dtype, {2, 1});
        bench.run(Gemm{.a = a, .b = b, .c = c});
        const std::vector<double> result = bench.values_of(c);
        EXPECT_EQ(result[0], infinity);
        EXPECT_TRUE(std::isnan(result[1]));
    }
}

TEST(Gemm, BitsDoNotDependOnTheNumberOfThreads) {
    for (DType dtype : activation_types())
        for (bool transpose : {false, true}) {
            const Variant variant{.rows = 300,
                                  .columns = 270,
                                  .depth = 1030,
                                  .input = dtype,
                                  .output = dtype,
                                  .transpose_a = transpose,
                                  .transpose_b = !transpose,
                                  .accumulate = true,
                                  .bias = dtype,
                                  .gap = 1};
            SCOPED_TRACE(variant.text());
            const auto with_threads = [&](int count) {
                const Threads threads(count);
                Workbench bench;
                const Operands operands(bench, variant, 5);
                bench.run(operands.gemm);
                return bench.get(operands.whole_c);
            };
            const OwnedTensor one = with_threads(1);
            EXPECT_TRUE(same_bits(one, with_threads(2)));
            EXPECT_TRUE(same_bits(one, with_threads(3)));
        }
}

/// Plans are kept between calls, and the number of threads may grow after they were made.
TEST(Gemm, OneEngineServesChangingThreadsAndShapes) {
    Workbench bench;
    const Variant large{.rows = 257, .columns = 260, .depth = 64};
    const Variant small{.rows = 20, .columns = 10, .depth = 9, .input = DType::bf16};
    for (int count : {1, 3, 2}) {
        const Threads threads(count);
        expect_right(bench, large, 1);
        expect_right(bench, small, 2);
        EXPECT_EQ(omp_get_max_threads(), count) << "the caller's setting was changed";
    }
}

}  // namespace
}  // namespace drover::test::gemm_test
