#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test {
namespace {

using Use = GroupedFp8Gemm::Use;

/// Settings for each method that a backend has for grouped products, starting with its own choice.
std::vector<BackendSettings> methods() {
    if (!tests_use_cuda()) return {backend_settings_from_environment()};
    return {{},
            {.grouped_gemm = GroupedGemmMethod::cublas},
            {.grouped_gemm = GroupedGemmMethod::streams},
            {.grouped_gemm = GroupedGemmMethod::kernel}};
}

struct Groups {
    const char* name;
    std::vector<std::int32_t> counts;

    friend void PrintTo(const Groups& groups, std::ostream* out) { *out << groups.name; }

    std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()); }
    /// [E + 1]
    std::vector<std::int32_t> offsets() const {
        std::vector<std::int32_t> offsets = {0};
        for (const std::int32_t count : counts) offsets.push_back(offsets.back() + count);
        return offsets;
    }
    std::int64_t rows() const { return offsets().back(); }
    /// Where each expert's columns of a transpose begin.
    std::vector<std::int64_t> first_columns() const {
        std::vector<std::int64_t> first = {0};
        for (const std::int32_t count : counts) first.push_back(first.back() + (count + 127) / 128 * 128);
        return first;
    }
};

/// Rows sorted by expert, or experts' matrices, in FP8: as they are and transposed.
struct Fp8Operand {
    Tensor y, transposed, scale;

    Fp8Operand(Workbench& bench, const Tensor& x, std::int64_t groups, const Tensor& offsets)
        : y(bench.make(DType::f8, x.shape())), scale(bench.make(DType::f32, {1})) {
        const Tensor maximum = bench.put({0.f});
        bench.run(AbsoluteMaximum{.x = x, .maximum = maximum});
        const std::int64_t rows = x.size(0), width = x.size(1);
        transposed = bench.make(DType::f8, offsets ? Shape{width, expert_columns(rows, offsets.size(0) - 1)}
                                                   : Shape{groups * width, rows / groups});
        bench.run(Quantise{.x = x,
                           .maximum = maximum,
                           .y = y,
                           .transposed = transposed,
                           .scale = scale,
                           .groups = groups,
                           .offsets = offsets});
    }

    /// What the FP8 numbers stand for.
    std::vector<double> numbers(Workbench& bench) const {
        std::vector<double> numbers = bench.values_of(y);
        const double factor = bench.values_of(scale)[0];
        for (double& number : numbers) number *= factor;
        return numbers;
    }
};

class Fp8Experts : public testing::TestWithParam<Groups> {};

TEST_P(Fp8Experts, RowsAreTransposedToAlignedColumns) {
    const Groups& groups = GetParam();
    const std::int64_t rows = groups.rows(), experts = groups.experts();
    const std::vector<std::int32_t> begin = groups.offsets();
    const std::vector<std::int64_t> first = groups.first_columns();
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const std::int64_t width : {144, 51}) {
            Workbench bench;
            const Tensor x = bench.put(random_normal(dtype, {rows, width}, 1));
            const Fp8Operand made(bench, x, 1, bench.put(Tensor::of(begin.data(), {experts + 1})));
            const std::vector<double> y = bench.values_of(made.y), turned = bench.values_of(made.transposed);
            const std::int64_t columns = expert_columns(rows, experts);
            ASSERT_LE(first.back(), columns);
            const auto at = [&](std::int64_t column, std::int64_t across) {
                return turned[static_cast<std::size_t>(column * columns + across)];
            };
            for (std::int64_t column = 0; column < width; ++column) {
                for (std::size_t e = 0; e < groups.counts.size(); ++e)
                    for (std::int64_t i = 0; i < first[e + 1] - first[e]; ++i) {
                        const std::int64_t row = begin[e] + i;
                        const double expected =
                            i < groups.counts[e] ? y[static_cast<std::size_t>(row * width + column)] : 0;
                        ASSERT_EQ(at(column, first[e] + i), expected) << e << ' ' << i << ' ' << column;
                    }
                // What follows is left as it was.
                for (std::int64_t i = first.back(); i < columns; ++i) ASSERT_TRUE(std::isnan(at(column, i)));
            }
        }
}

/// Compares with sums in f64 of the same FP8 numbers.
void expect_products(Workbench& bench, const Groups& groups, std::int64_t in, std::int64_t out) {
    const std::int64_t rows = groups.rows(), experts = groups.experts();
    const std::vector<std::int32_t> begin = groups.offsets();
    const Tensor offsets = bench.put(Tensor::of(begin.data(), {experts + 1}));
    const Fp8Operand x(bench, bench.put(random_normal(DType::bf16, {rows, in}, 1)), 1, offsets),
        dy(bench, bench.put(random_normal(DType::bf16, {rows, out}, 2, 1e-4)), 1, offsets),
        weights(bench, bench.put(random_normal(DType::bf16, {experts * out, in}, 3, 0.02)), experts, {});

    const std::vector<double> vx = x.numbers(bench), vdy = dy.numbers(bench), vw = weights.numbers(bench);
    std::vector<double> y(vdy.size(), 0), dx(vx.size(), 0), dw(vw.size(), 0);
    for (std::int64_t e = 0; e < experts; ++e)
        for (std::int64_t r = begin[static_cast<std::size_t>(e)]; r < begin[static_cast<std::size_t>(e) + 1];
             ++r)
            for (std::int64_t o = 0; o < out; ++o)
                for (std::int64_t i = 0; i < in; ++i) {
                    const std::int64_t of_weight = (e * out + o) * in + i;
                    y[r * out + o] += vx[r * in + i] * vw[of_weight];
                    dx[r * in + i] += vdy[r * out + o] * vw[of_weight];
                    dw[of_weight] += vdy[r * out + o] * vx[r * in + i];
                }

    const auto compare = [&](GroupedFp8Gemm product, DType result, const Shape& shape,
                             const std::vector<double>& expected) {
        product.offsets = offsets;
        const OwnedTensor before = random_normal(result, shape, 4, 1e-3);
        for (const bool fast : {false, true})
            for (const bool accumulate : {false, true}) {
                product.c = accumulate ? bench.put(before) : bench.make(result, shape);
                product.accumulate = accumulate;
                product.fast = fast;
                bench.run(product);
                std::vector<double> sum = expected;
                const std::vector<double> there = values(before);
                for (std::size_t i = 0; accumulate && i < sum.size(); ++i) sum[i] += there[i];
                // A GPU's matrix unit sums up 128 products in some 13 bits.
                const double of_sums = !tests_use_cuda() ? 2e-5 : fast ? 1e-3 : 3e-4;
                const double tolerance = result == DType::f32 ? of_sums : 5e-3;
                EXPECT_LE(relative_error(bench.values_of(product.c), sum), tolerance)
                    << static_cast<int>(product.use) << ' ' << name_of(result) << " fast " << fast
                    << " accumulate " << accumulate;
            }
    };
    for (const DType result : {DType::bf16, DType::f32}) {
        compare({.use = Use::forward, .a = x.y, .b = weights.y, .scale_a = x.scale, .scale_b = weights.scale},
                result, {rows, out}, y);
        compare({.use = Use::data_gradient,
                 .a = dy.y,
                 .b = weights.transposed,
                 .scale_a = dy.scale,
                 .scale_b = weights.scale},
                result, {rows, in}, dx);
        compare({.use = Use::weight_gradient,
                 .a = dy.transposed,
                 .b = x.transposed,
                 .scale_a = dy.scale,
                 .scale_b = x.scale},
                result, {experts * out, in}, dw);
    }
}

TEST_P(Fp8Experts, ProductsMatchTheReference) {
    for (const BackendSettings& method : methods()) {
        Workbench bench(method);
        for (const auto& [in, out] : {std::pair{128, 256}, {144, 272}, {48, 16}}) {
            SCOPED_TRACE(testing::Message()
                         << in << " × " << out << " method "
                         << (method.grouped_gemm ? static_cast<int>(*method.grouped_gemm) : -1));
            expect_products(bench, GetParam(), in, out);
        }
    }
}

/// About 14 rows each, some with none.
std::vector<std::int32_t> uneven_counts(int experts) {
    std::vector<std::int32_t> counts;
    for (int e = 0; e < experts; ++e) counts.push_back(e % 5 == 3 ? 0 : 1 + e * 7 % 29);
    return counts;
}

INSTANTIATE_TEST_SUITE_P(Backend, Fp8Experts,
                         testing::Values(Groups{"one_expert", {77}}, Groups{"first_has_none", {0, 130}},
                                         Groups{"one_takes_all", {0, 0, 0, 201, 0, 0, 0, 0}},
                                         Groups{"around_the_tiles", {1, 127, 128, 129, 63, 64, 65, 0}},
                                         Groups{"one_row_each", {1, 1, 1, 1, 1, 1, 1, 1}},
                                         Groups{"many_experts", uneven_counts(37)}),
                         [](const auto& groups) { return std::string(groups.param.name); });

/// More tiles in both directions than are processed together, and sums of many steps.
TEST(GroupedFp8Gemm, LargeMatrices) {
    for (const BackendSettings& method : methods()) {
        Workbench bench(method);
        expect_products(bench, {"large", {300, 0, 517}}, 336, 2064);
    }
}

TEST(GroupedFp8Gemm, RepeatedRunsGiveEqualBits) {
    const Groups groups{"", {200, 33, 0, 290}};
    const std::vector<std::int32_t> begin = groups.offsets();
    const std::int64_t rows = groups.rows(), experts = groups.experts(), in = 528, out = 272;
    for (const BackendSettings& method : methods()) {
        Workbench bench(method);
        const Tensor offsets = bench.put(Tensor::of(begin.data(), {experts + 1}));
        const Fp8Operand x(bench, bench.put(random_normal(DType::bf16, {rows, in}, 1)), 1, offsets),
            dy(bench, bench.put(random_normal(DType::bf16, {rows, out}, 2)), 1, offsets);
        const auto run = [&] {
            const Tensor c = bench.make(DType::f32, {experts * out, in});
            bench.run(GroupedFp8Gemm{.use = Use::weight_gradient,
                                     .a = dy.transposed,
                                     .b = x.transposed,
                                     .c = c,
                                     .scale_a = dy.scale,
                                     .scale_b = x.scale,
                                     .offsets = offsets});
            return bench.values_of(c);
        };
        const std::vector<double> first = run();
        EXPECT_EQ(run(), first);
    }
}

/// Numbers that are not finite stay in the group that has them.
TEST(GroupedFp8Gemm, NeighboursDoNotMix) {
    const std::int64_t experts = 3, rows = 210, in = 80, out = 96;
    const std::vector<std::int32_t> begin = {0, 70, 120, 210};
    const OwnedTensor x = random_normal(DType::bf16, {rows, in}, 1);
    for (const BackendSettings& method : methods()) {
        Workbench bench(method);
        const Tensor offsets = bench.put(Tensor::of(begin.data(), {experts + 1}));
        const Fp8Operand plain(bench, bench.put(x), 1, offsets),
            dy(bench, bench.put(random_normal(DType::bf16, {rows, out}, 2)), 1, offsets),
            weights(bench, bench.put(random_normal(DType::bf16, {experts * out, in}, 3)), experts, {});
        // The same numbers, but NaN in the middle.
        OwnedTensor spoilt = bench.get(plain.y), spoilt_across = bench.get(plain.transposed);
        const std::int64_t columns = expert_columns(rows, experts);
        auto* bytes = static_cast<std::uint8_t*>(spoilt.tensor().raw());
        std::fill(bytes + 70 * in, bytes + 120 * in, std::uint8_t{0x7F});
        for (std::int64_t i = 0; i < in; ++i) {
            auto* line = static_cast<std::uint8_t*>(spoilt_across.tensor().raw()) + i * columns;
            std::fill(line + 128, line + 128 + 50, std::uint8_t{0x7F});
        }
        const auto run = [&](Use use, const Tensor& a, const Tensor& b, const Fp8Operand& of_a,
                             const Fp8Operand& of_b, const Shape& shape) {
            const Tensor c = bench.make(DType::f32, shape);
            bench.run(GroupedFp8Gemm{.use = use,
                                     .a = a,
                                     .b = b,
                                     .c = c,
                                     .scale_a = of_a.scale,
                                     .scale_b = of_b.scale,
                                     .offsets = offsets});
            return bench.values_of(c);
        };
        const auto expect_middle_apart = [](const std::vector<double>& clean, const std::vector<double>& got,
                                            std::int64_t first, std::int64_t last) {
            for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()); ++i) {
                const auto at = static_cast<std::size_t>(i);
                if (i >= first && i < last)
                    ASSERT_TRUE(std::isnan(got[at])) << i;
                else
                    ASSERT_EQ(got[at], clean[at]) << i;
            }
        };
        const auto forward = [&](const Tensor& a) {
            return run(Use::forward, a, weights.y, plain, weights, {rows, out});
        };
        const auto gradient = [&](const Tensor& b) {
            return run(Use::weight_gradient, dy.transposed, b, dy, plain, {experts * out, in});
        };
        expect_middle_apart(forward(plain.y), forward(bench.put(spoilt)), 70 * out, 120 * out);
        expect_middle_apart(gradient(plain.transposed), gradient(bench.put(spoilt_across)), out * in,
                            2 * out * in);
    }
}

}  // namespace
}  // namespace drover::test
