#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::block_fp8_test {
namespace {

constexpr std::int64_t block = fp8_block;

/// 1 / 128 rounded up to a power of two for a block whose largest magnitude is 3.5, and so on.
double expected_scale(double most) {
    most = std::max(most, static_cast<double>(smallest_maximum));
    int exponent = std::ilogb(most / f8::largest);
    while (std::ldexp(f8::largest, exponent) < most) ++exponent;
    return std::ldexp(1.0, exponent);
}

/// FP8 matrices one below the other, with scales of blocks, as they are and transposed.
struct Quantised {
    Fp8Scales kind;
    std::int64_t groups, rows, columns;  ///< rows of x, in all groups
    Tensor y, scales, transposed, transposed_scales;

    Quantised(Workbench& bench, const Tensor& x, Fp8Scales blocks, std::int64_t group_count = 1,
              const Tensor& offsets = {})
        : kind(blocks), groups(group_count), rows(x.size(0)), columns(x.size(1)) {
        const std::int64_t filled = rows_of_operand(kind, rows);
        const std::int64_t across = offsets                      ? expert_columns(rows, offsets.size(0) - 1)
                                    : kind == Fp8Scales::squares ? rows / groups
                                                                 : (rows + 15) / 16 * 16;
        y = bench.make(DType::f8, {filled, columns});
        scales = bench.make(DType::f32, shape_of_scales(kind, filled, columns, groups));
        transposed = bench.make(DType::f8, {groups * columns, across});
        transposed_scales = bench.make(DType::f32, shape_of_scales(kind, groups * columns, across, groups));
        bench.run(QuantiseBlocks{.x = x,
                                 .blocks = kind,
                                 .y = y,
                                 .scales = scales,
                                 .transposed = transposed,
                                 .transposed_scales = transposed_scales,
                                 .groups = groups,
                                 .offsets = offsets});
    }

    /// What the numbers of a matrix stand for, [its rows · its columns].
    std::vector<double> numbers(Workbench& bench, const Tensor& matrix, const Tensor& its_scales) const {
        std::vector<double> numbers = bench.values_of(matrix);
        const std::vector<double> scale = bench.values_of(its_scales);
        const std::int64_t wide = matrix.size(1), pitch = its_scales.size(1),
                           height = matrix.size(0) / groups, down = its_scales.size(0) / groups;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto row = static_cast<std::int64_t>(i) / wide,
                       column = static_cast<std::int64_t>(i) % wide;
            const std::int64_t at =
                kind == Fp8Scales::rows
                    ? column / block * pitch + row
                    : (row / height * down + row % height / block) * pitch + column / block;
            numbers[i] *= scale[static_cast<std::size_t>(at)];
        }
        return numbers;
    }
    /// Of y without the rows that fill it up.
    std::vector<double> numbers(Workbench& bench) const {
        std::vector<double> all = numbers(bench, y, scales);
        all.resize(static_cast<std::size_t>(rows * columns));
        return all;
    }
    std::vector<double> transposed_numbers(Workbench& bench) const {
        return numbers(bench, transposed, transposed_scales);
    }
};

/// Normal numbers of which neighbours in both directions have other orders of magnitude. Products of some
/// hundred of them fit into fp16.
OwnedTensor varied(DType dtype, const Shape& shape, unsigned seed) {
    OwnedTensor x = random_normal(DType::f32, shape, seed);
    auto* numbers = x.tensor().data<float>();
    for (std::int64_t i = 0; i < shape.numel(); ++i)
        numbers[i] =
            std::ldexp(numbers[i], static_cast<int>((i / shape[1] * 5 + i % shape[1] / 16) % 13) - 8);
    return OwnedTensor::converted(x, dtype);
}

/// The numbers that x [rows,columns] should become in blocks of this size, which begin anew every
/// `group_height` rows.
std::vector<double> expected_numbers(const std::vector<double>& x, std::int64_t columns, std::int64_t height,
                                     std::int64_t width, std::int64_t group_height) {
    const std::int64_t wide = (columns + width - 1) / width, high = (group_height + height - 1) / height;
    const auto block_of = [&](std::size_t i) {
        const auto row = static_cast<std::int64_t>(i) / columns,
                   column = static_cast<std::int64_t>(i) % columns;
        return static_cast<std::size_t>((row / group_height * high + row % group_height / height) * wide +
                                        column / width);
    };
    std::vector<double> most(block_of(x.size() - 1) + 1, 0), expected;
    for (std::size_t i = 0; i < x.size(); ++i)
        most[block_of(i)] = std::max(most[block_of(i)], std::fabs(x[i]));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double scale = expected_scale(most[block_of(i)]);
        expected.push_back(static_cast<float>(f8(static_cast<float>(x[i] / scale))) * scale);
    }
    return expected;
}

constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{128, 256},  {131, 272}, {5, 16},
                                                            {300, 1008}, {1, 16},    {256, 144}};

TEST(QuantiseBlocks, EveryRowAndEveryColumnOf128HasItsScale) {
    for (const DType dtype : activation_types())
        for (const auto& [rows, columns] : shapes) {
            Workbench bench;
            const OwnedTensor x = varied(dtype, {rows, columns}, 1);
            const Quantised made(bench, bench.put(x), Fp8Scales::rows);
            const std::vector<double> exact = values(x);
            EXPECT_EQ(made.numbers(bench), expected_numbers(exact, columns, 1, block, rows))
                << rows << ' ' << columns;

            const std::vector<double> down = expected_numbers(exact, columns, block, 1, rows),
                                      turned = made.transposed_numbers(bench);
            const std::int64_t across = made.transposed.size(1);
            for (std::int64_t column = 0; column < columns; ++column)
                for (std::int64_t row = 0; row < across; ++row) {
                    const double expected =
                        row < rows ? down[static_cast<std::size_t>(row * columns + column)] : 0;
                    ASSERT_EQ(turned[static_cast<std::size_t>(column * across + row)], expected)
                        << row << ' ' << column;
                }

            // One of the two alone, of a part of the columns.
            const Tensor part = bench.make(DType::f8, {16, across}),
                         part_scales = bench.make(DType::f32, shape_of_scales(Fp8Scales::rows, 16, across));
            bench.run(QuantiseBlocks{.x = bench.put(x).columns(columns - 16, 16),
                                     .blocks = Fp8Scales::rows,
                                     .transposed = part,
                                     .transposed_scales = part_scales});
            const std::vector<double> all = bench.values_of(made.transposed);
            EXPECT_EQ(bench.values_of(part), std::vector<double>(all.end() - 16 * across, all.end()));
        }
}

TEST(QuantiseBlocks, SquaresSurviveATranspose) {
    for (const DType dtype : activation_types())
        for (const std::int64_t groups : {1, 3})
            for (const auto& [rows, columns] : {std::pair{128, 256}, {16, 16}, {272, 144}, {144, 1008}}) {
                Workbench bench;
                const OwnedTensor x = varied(dtype, {groups * rows, columns}, 2);
                const Quantised made(bench, bench.put(x), Fp8Scales::squares, groups);
                const std::vector<double> exact = values(x);
                const std::int64_t height = rows, wide = columns;
                const std::vector<double> numbers = made.numbers(bench),
                                          turned = made.transposed_numbers(bench);
                EXPECT_EQ(numbers, expected_numbers(exact, columns, block, block, rows));
                for (std::int64_t row = 0; row < groups * height; ++row)
                    for (std::int64_t column = 0; column < wide; ++column) {
                        const std::int64_t group = row / height,
                                           at = (group * wide + column) * height + row % height;
                        ASSERT_EQ(turned[static_cast<std::size_t>(at)],
                                  numbers[static_cast<std::size_t>(row * wide + column)])
                            << row << ' ' << column;
                    }
            }
}

TEST(QuantiseBlocks, NumbersAreThoseOfPyTorch) {
    const SafetensorsFile golden(golden_path("fp8/blocks.safetensors"));
    const Tensor x = golden.tensor("x");
    Workbench bench;
    const Quantised rows(bench, bench.put(x), Fp8Scales::rows),
        squares(bench, bench.put(OwnedTensor::copy_of(x.rows(0, 128))), Fp8Scales::squares);
    EXPECT_EQ(rows.numbers(bench), values(golden.tensor("rows")));
    std::vector<double> of_squares = values(golden.tensor("squares"));
    of_squares.resize(static_cast<std::size_t>(128 * x.size(1)));
    EXPECT_EQ(squares.numbers(bench), of_squares);
    const std::vector<double> down = values(golden.tensor("columns")),
                              turned = rows.transposed_numbers(bench);
    const std::int64_t across = rows.transposed.size(1);
    for (std::int64_t row = 0; row < x.size(0); ++row)
        for (std::int64_t column = 0; column < x.size(1); ++column)
            ASSERT_EQ(turned[static_cast<std::size_t>(column * across + row)],
                      down[static_cast<std::size_t>(row * x.size(1) + column)]);

    const std::vector<double> scales = bench.values_of(rows.scales),
                              of_rows = values(golden.tensor("rows.scales"));
    for (std::int64_t row = 0; row < x.size(0); ++row)
        for (std::int64_t column = 0; column < 2; ++column)
            EXPECT_EQ(scales[static_cast<std::size_t>(column * rows.scales.size(1) + row)],
                      of_rows[static_cast<std::size_t>(row * 2 + column)]);
}

TEST(QuantiseBlocks, ScalesArePowersOfTwoThatLetTheLargestFit) {
    Workbench bench;
    const auto scale_of = [&](float most) {
        std::vector<float> x(16, 0);
        x[3] = -most;
        const Quantised made(bench, bench.put(Tensor::of(x.data(), {1, 16})), Fp8Scales::rows);
        for (const double number : bench.values_of(made.y.rows(0, 1))) EXPECT_LE(std::fabs(number), 448);
        return bench.values_of(made.scales)[0];
    };
    EXPECT_EQ(scale_of(448), 1);
    EXPECT_EQ(scale_of(std::nextafter(448.f, 500.f)), 2);
    EXPECT_EQ(scale_of(225), 1);
    EXPECT_EQ(scale_of(224), 0.5);
    EXPECT_EQ(scale_of(3.5e-20f), expected_scale(3.5e-20f));
    EXPECT_EQ(scale_of(3e38f), std::ldexp(1.0, 120));
    // The smallest that any block has.
    EXPECT_EQ(scale_of(0), std::ldexp(1.0, -108));
    EXPECT_EQ(scale_of(1e-38f), std::ldexp(1.0, -108));
}

TEST(QuantiseBlocks, NumbersThatAreNotFiniteSpoilTheirBlockAlone) {
    constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(),
                    infinity = std::numeric_limits<float>::infinity();
    for (const DType dtype : activation_types())
        for (const float bad : {not_a_number, infinity, -infinity}) {
            OwnedTensor x = random_normal(DType::f32, {130, 144}, 3);
            x.tensor().data<float>()[5 * 144 + 130] = bad;
            const auto is_nan = [](const std::vector<double>& numbers, std::int64_t at) {
                return std::isnan(numbers[static_cast<std::size_t>(at)]);
            };
            Workbench bench;
            const Tensor on_device = bench.put(x, dtype);
            const Quantised rows(bench, on_device, Fp8Scales::rows);
            const std::vector<double> y = rows.numbers(bench), turned = rows.transposed_numbers(bench);
            const OwnedTensor square_of = OwnedTensor::copy_of(x.tensor().rows(0, 128));
            const Quantised squares(bench, bench.put(square_of, dtype), Fp8Scales::squares);
            const std::vector<double> both = squares.numbers(bench);
            for (std::int64_t row = 0; row < 130; ++row)
                for (std::int64_t column = 0; column < 144; ++column) {
                    EXPECT_EQ(is_nan(y, row * 144 + column), row == 5 && column >= 128);
                    EXPECT_EQ(is_nan(turned, column * 144 + row), row < 128 && column == 130);
                    if (row < 128) {
                        EXPECT_EQ(is_nan(both, row * 144 + column), column >= 128);
                    }
                }
        }
}

struct Sizes {
    std::int64_t tokens, in, out;
};

/// Nice ones, and multiples of 16 that are none of 128, of numbers of tokens that are no multiples of 4.
constexpr Sizes sizes[] = {{128, 256, 384}, {77, 144, 48},   {1, 16, 16},
                           {130, 272, 400}, {300, 528, 336}, {4, 128, 144}};

struct Products {
    std::vector<double> y, dx, dw;
};

/// A matrix' three products, of the same numbers on every backend. Results are added to what is there, or
/// to a bias, or neither.
struct Matrix {
    Sizes size;
    DType dtype;
    OwnedTensor x, dy, weight, bias;

    Matrix(const Sizes& of, DType type)
        : size(of),
          dtype(type),
          x(varied(type, {of.tokens, of.in}, 1)),
          dy(varied(type, {of.tokens, of.out}, 2)),
          weight(varied(type, {of.out, of.in}, 3)),
          bias(random_normal(type, {of.out}, 4)) {}

    /// What a result is added to.
    OwnedTensor before(std::int64_t rows, std::int64_t columns) const {
        return random_normal(dtype, {rows, columns}, 5);
    }

    Products multiply(Workbench& bench, DType result, bool with_bias, bool accumulate) const {
        const Quantised of_x(bench, bench.put(x), Fp8Scales::rows),
            of_dy(bench, bench.put(dy), Fp8Scales::rows),
            of_weight(bench, bench.put(weight), Fp8Scales::squares);
        const auto run = [&](Fp8Gemm product, std::int64_t rows, std::int64_t columns) {
            product.c = bench.put(before(rows, columns), result);
            product.accumulate = accumulate;
            product.scales_a = Fp8Scales::rows;
            bench.run(product);
            return bench.values_of(product.c);
        };
        return {.y = run({.a = of_x.y,
                          .b = of_weight.y,
                          .scale_a = of_x.scales,
                          .scale_b = of_weight.scales,
                          .bias = with_bias ? bench.put(bias, result) : Tensor(),
                          .scales_b = Fp8Scales::squares},
                         size.tokens, size.out),
                .dx = run({.a = of_dy.y,
                           .b = of_weight.transposed,
                           .scale_a = of_dy.scales,
                           .scale_b = of_weight.transposed_scales,
                           .scales_b = Fp8Scales::squares},
                          size.tokens, size.in),
                .dw = run({.a = of_dy.transposed,
                           .b = of_x.transposed,
                           .scale_a = of_dy.transposed_scales,
                           .scale_b = of_x.transposed_scales,
                           .scales_b = Fp8Scales::rows},
                          size.out, size.in)};
    }

    /// Their sums in f64, of what the numbers stand for. The CPU does not know fp16; fp32 has the same
    /// numbers.
    Products sums() const {
        Workbench bench(make_cpu_backend());
        const Quantised of_x(bench, bench.put(x, DType::f32), Fp8Scales::rows),
            of_dy(bench, bench.put(dy, DType::f32), Fp8Scales::rows),
            of_weight(bench, bench.put(weight, DType::f32), Fp8Scales::squares);
        const auto product = [&](const std::vector<double>& a, const std::vector<double>& b,
                                 std::int64_t rows, std::int64_t columns) {
            const auto depth = static_cast<std::int64_t>(a.size()) / rows;
            std::vector<double> c;
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t column = 0; column < columns; ++column)
                    c.push_back(std::inner_product(a.begin() + row * depth, a.begin() + (row + 1) * depth,
                                                   b.begin() + column * depth, 0.0));
            return c;
        };
        return {
            .y = product(of_x.numbers(bench), of_weight.numbers(bench), size.tokens, size.out),
            .dx = product(of_dy.numbers(bench), of_weight.transposed_numbers(bench), size.tokens, size.in),
            .dw =
                product(of_dy.transposed_numbers(bench), of_x.transposed_numbers(bench), size.out, size.in)};
    }

    /// What multiply() should give.
    Products expected(Products sums, DType result, bool with_bias, bool accumulate) const {
        const std::vector<double> its_bias = values(OwnedTensor::converted(bias, result));
        const auto add = [&](std::vector<double>& c, std::int64_t rows, std::int64_t columns,
                             bool adds_bias) {
            const std::vector<double> there = values(OwnedTensor::converted(before(rows, columns), result));
            for (std::size_t i = 0; i < c.size(); ++i) {
                if (adds_bias) c[i] += its_bias[i % static_cast<std::size_t>(columns)];
                if (accumulate) c[i] += there[i];
            }
        };
        add(sums.y, size.tokens, size.out, with_bias);
        add(sums.dx, size.tokens, size.in, false);
        add(sums.dw, size.out, size.in, false);
        return sums;
    }
};

void expect_near(const Products& got, const Products& expected, double tolerance, const std::string& what) {
    EXPECT_LE(relative_error(got.y, expected.y), tolerance) << "forward, " << what;
    EXPECT_LE(relative_error(got.dx, expected.dx), tolerance) << "gradient of the input, " << what;
    EXPECT_LE(relative_error(got.dw, expected.dw), tolerance) << "gradient of the weight, " << what;
}

/// Calls use(matrix, format of results, with a bias, accumulating, text) for all of them.
template <class Use>
void for_each_product(const Matrix& matrix, const Use& use) {
    for (const DType result : {matrix.dtype, DType::f32})
        for (const auto& [with_bias, accumulate] :
             {std::pair{false, false}, {true, false}, {false, true}, {true, true}})
            use(result, with_bias, accumulate,
                std::to_string(matrix.size.tokens) + " × " + std::to_string(matrix.size.in) + " × " +
                    std::to_string(matrix.size.out) + " " + std::string(name_of(matrix.dtype)) + " to " +
                    std::string(name_of(result)) + (with_bias ? ", bias" : "") +
                    (accumulate ? ", accumulating" : ""));
}

/// Of sums in fp32. A GPU's sums of 128 products have fewer bits.
double tolerance_of(DType result) {
    return result != DType::f32 ? 5e-3 : tests_use_cuda() ? 3e-4 : 1e-5;
}

TEST(BlockFp8Gemm, MultipliesWhatTheNumbersStandFor) {
    Workbench bench;
    for (const DType dtype : activation_types())
        for (const Sizes& size : sizes) {
            const Matrix matrix(size, dtype);
            const Products sums = matrix.sums();
            for_each_product(matrix, [&](DType result, bool with_bias, bool accumulate,
                                         const std::string& what) {
                expect_near(matrix.multiply(bench, result, with_bias, accumulate),
                            matrix.expected(sums, result, with_bias, accumulate), tolerance_of(result), what);
            });
        }
}

/// The kernels of a GPU, from the numbers as they come to all three results, beside the emulation.
TEST(BlockFp8Gemm, AGpuGivesWhatTheCpuEmulates) {
    if (!tests_use_cuda()) GTEST_SKIP() << "compares a GPU with the CPU; DROVER_TEST_DEVICE=cuda runs this";
    Workbench device, processor(make_cpu_backend());
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const Sizes& size : sizes) {
            const Matrix matrix(size, dtype);
            for_each_product(matrix,
                             [&](DType result, bool with_bias, bool accumulate, const std::string& what) {
                                 expect_near(matrix.multiply(device, result, with_bias, accumulate),
                                             matrix.multiply(processor, result, with_bias, accumulate),
                                             tolerance_of(result), what);
                             });
        }
    // Results of more columns than a GPU makes at a time where it fills rows up.
    const Matrix wide({4099, 16, 8192}, DType::bf16);
    expect_near(wide.multiply(device, DType::bf16, true, false),
                wide.multiply(processor, DType::bf16, true, false), tolerance_of(DType::bf16), "wide");
}

/// A sum whose terms cancel but for the smallest shows a scale that is missing, or is another block's.
TEST(BlockFp8Gemm, EveryBlockHasItsOwnScale) {
    constexpr std::int64_t depth = 3 * block, rows = 4, columns = 256;
    OwnedTensor a(DType::f32, {rows, depth}), b(DType::f32, {columns, depth});
    std::vector<double> expected(rows * columns, 0);
    for (std::int64_t i = 0; i < rows * depth; ++i)
        a.tensor().data<float>()[i] = std::ldexp(1.f, static_cast<int>(i % depth / block * 9 + i / depth));
    for (std::int64_t i = 0; i < columns * depth; ++i)
        b.tensor().data<float>()[i] =
            std::ldexp(1.f, static_cast<int>(-9 * (i % depth / block) - i / depth / block * 5));
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column)
            expected[static_cast<std::size_t>(row * columns + column)] =
                std::ldexp(static_cast<double>(depth), static_cast<int>(row - column / block * 5));
    for (const Fp8Scales kind : {Fp8Scales::rows, Fp8Scales::squares}) {
        Workbench bench;
        const Quantised of_a(bench, bench.put(a), Fp8Scales::rows), of_b(bench, bench.put(b), kind);
        const Tensor c = bench.make(DType::f32, {rows, columns});
        bench.run(Fp8Gemm{.a = of_a.y,
                          .b = of_b.y,
                          .c = c,
                          .scale_a = of_a.scales,
                          .scale_b = of_b.scales,
                          .scales_a = Fp8Scales::rows,
                          .scales_b = kind});
        EXPECT_EQ(bench.values_of(c), expected);
    }
}

/// Experts' rows, beside products of each expert alone.
class BlockFp8Experts : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(BlockFp8Experts, ProductsAreThoseOfEachExpertAlone) {
    if (!multiplies_experts_in_blocks()) GTEST_SKIP() << "only code for Hopper multiplies experts in blocks";
    using Use = GroupedFp8Gemm::Use;
    const std::vector<std::int32_t>& counts = GetParam();
    const auto experts = static_cast<std::int64_t>(counts.size());
    std::vector<std::int32_t> begin = {0};
    for (const std::int32_t count : counts) begin.push_back(begin.back() + count);
    const std::int64_t rows = begin.back();
    for (const DType dtype : {DType::bf16, DType::f32})
        for (const auto& [in, out] : {std::pair{128, 256}, {144, 272}, {48, 16}, {336, 528}})
            for (const bool accumulate : {false, true}) {
                Workbench bench;
                const Tensor offsets = bench.put(Tensor::of(begin.data(), {experts + 1}));
                const OwnedTensor x = varied(dtype, {rows, in}, 1), dy = varied(dtype, {rows, out}, 2),
                                  weights = varied(dtype, {experts * out, in}, 3);
                const Quantised of_x(bench, bench.put(x), Fp8Scales::rows, 1, offsets),
                    of_dy(bench, bench.put(dy), Fp8Scales::rows, 1, offsets),
                    of_weights(bench, bench.put(weights), Fp8Scales::squares, experts);
                const auto run = [&](GroupedFp8Gemm product, std::int64_t height, std::int64_t width) {
                    product.c = bench.put(random_normal(dtype, {height, width}, 4));
                    product.offsets = offsets;
                    product.accumulate = accumulate;
                    product.scales_a = Fp8Scales::rows;
                    bench.run(product);
                    return product.c;
                };
                const Tensor y = run({.use = Use::forward,
                                      .a = of_x.y,
                                      .b = of_weights.y,
                                      .scale_a = of_x.scales,
                                      .scale_b = of_weights.scales,
                                      .scales_b = Fp8Scales::squares},
                                     rows, out),
                             dx = run({.use = Use::data_gradient,
                                       .a = of_dy.y,
                                       .b = of_weights.transposed,
                                       .scale_a = of_dy.scales,
                                       .scale_b = of_weights.transposed_scales,
                                       .scales_b = Fp8Scales::squares},
                                      rows, in),
                             dw = run({.use = Use::weight_gradient,
                                       .a = of_dy.transposed,
                                       .b = of_x.transposed,
                                       .scale_a = of_dy.transposed_scales,
                                       .scale_b = of_x.transposed_scales,
                                       .scales_b = Fp8Scales::rows},
                                      experts * out, in);
                for (std::int64_t e = 0; e < experts; ++e) {
                    const std::int64_t first = begin[static_cast<std::size_t>(e)],
                                       count = counts[static_cast<std::size_t>(e)];
                    // On the CPU, whose products of one matrix are compared with sums in f64 above.
                    Workbench processor(make_cpu_backend());
                    const auto put = [&](const OwnedTensor& from, std::int64_t row, std::int64_t height) {
                        return processor.put(OwnedTensor::copy_of(from.tensor().rows(row, height)));
                    };
                    const auto there = [&](std::int64_t row, std::int64_t height, std::int64_t of,
                                           std::int64_t width) {
                        const OwnedTensor all = random_normal(dtype, {of, width}, 4);
                        return processor.put(OwnedTensor::copy_of(all.tensor().rows(row, height)));
                    };
                    const Quantised x_alone(processor, put(x, first, count), Fp8Scales::rows),
                        dy_alone(processor, put(dy, first, count), Fp8Scales::rows),
                        weight_alone(processor, put(weights, e * out, out), Fp8Scales::squares);
                    const auto alone = [&](Fp8Gemm product, const Tensor& c) {
                        product.c = c;
                        product.accumulate = accumulate;
                        product.scales_a = Fp8Scales::rows;
                        processor.run(product);
                        return processor.values_of(c);
                    };
                    const auto expect_part = [&](const Tensor& all, std::int64_t row,
                                                 const std::vector<double>& expected, const char* name) {
                        const std::vector<double> got = bench.values_of(all);
                        const auto from = got.begin() + row * all.size(1);
                        const std::vector<double> part(from,
                                                       from + static_cast<std::int64_t>(expected.size()));
                        EXPECT_LE(relative_error(part, expected), tolerance_of(dtype))
                            << name << " of expert " << e << ", " << in << " × " << out;
                    };
                    expect_part(y, first,
                                alone({.a = x_alone.y,
                                       .b = weight_alone.y,
                                       .scale_a = x_alone.scales,
                                       .scale_b = weight_alone.scales,
                                       .scales_b = Fp8Scales::squares},
                                      there(first, count, rows, out)),
                                "forward");
                    expect_part(dx, first,
                                alone({.a = dy_alone.y,
                                       .b = weight_alone.transposed,
                                       .scale_a = dy_alone.scales,
                                       .scale_b = weight_alone.transposed_scales,
                                       .scales_b = Fp8Scales::squares},
                                      there(first, count, rows, in)),
                                "gradient of the input");
                    expect_part(dw, e * out,
                                alone({.a = dy_alone.transposed,
                                       .b = x_alone.transposed,
                                       .scale_a = dy_alone.transposed_scales,
                                       .scale_b = x_alone.transposed_scales,
                                       .scales_b = Fp8Scales::rows},
                                      there(e * out, out, experts * out, in)),
                                "gradient of the weight");
                }
            }
}

INSTANTIATE_TEST_SUITE_P(Backend, BlockFp8Experts,
                         testing::Values(std::vector<std::int32_t>{77}, std::vector<std::int32_t>{0, 130},
                                         std::vector<std::int32_t>{1, 127, 128, 129, 0, 64, 3}));

}  // namespace
}  // namespace drover::test::block_fp8_test
