#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// The bytes of an FP8 tensor on the device.
std::vector<std::uint8_t> bytes_of(Workbench& bench, const Tensor& tensor) {
    const OwnedTensor host = bench.get(tensor);
    const auto* bytes = static_cast<const std::uint8_t*>(host.tensor().raw());
    return {bytes, bytes + host.tensor().bytes()};
}

Tensor empty(Workbench& bench, const Shape& shape) {
    return bench.make(DType::f8, shape);
}

/// One row.
Tensor row_of(Workbench& bench, DType dtype, const std::vector<float>& x) {
    return bench.put(Tensor::of(x.data(), {1, static_cast<std::int64_t>(x.size())}), dtype);
}

float number(std::uint8_t bits) {
    f8 value;
    value.bits = bits;
    return static_cast<float>(value);
}

float maximum_of(const OwnedTensor& x) {
    float most = 0;
    for (const double value : values(x)) most = std::max(most, std::fabs(static_cast<float>(value)));
    return most;
}

TEST(AbsoluteMaximum, RaisesWhatIsThere) {
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const OwnedTensor x = random_normal(dtype, {37, 1040}, 1);
        const Tensor on_device = bench.put(x), maximum = bench.put({0.f});
        bench.run(AbsoluteMaximum{.x = on_device, .maximum = maximum});
        EXPECT_EQ(bench.values_of(maximum)[0], maximum_of(x));
        // A part of it is not larger; something else may be.
        bench.run(AbsoluteMaximum{.x = on_device.columns(3, 50), .maximum = maximum});
        EXPECT_EQ(bench.values_of(maximum)[0], maximum_of(x));
        bench.run(AbsoluteMaximum{.x = row_of(bench, dtype, {1, -70, 2}), .maximum = maximum});
        EXPECT_EQ(bench.values_of(maximum)[0], 70);
        bench.run(
            AbsoluteMaximum{.x = row_of(bench, dtype, {1, -infinity}).view({2, 1}), .maximum = maximum});
        EXPECT_EQ(bench.values_of(maximum)[0], infinity);
        bench.run(AbsoluteMaximum{.x = row_of(bench, dtype, {1, not_a_number}), .maximum = maximum});
        EXPECT_TRUE(std::isnan(bench.values_of(maximum)[0]));
    }
}

TEST(Quantise, RoundsEveryElementOnceAndTransposes) {
    for (const DType dtype : activation_types())
        for (const auto& [rows, columns] : {std::pair{48, 64}, {131, 272}, {5, 51}, {300, 1008}, {1, 16}}) {
            Workbench bench;
            const OwnedTensor x = random_normal(dtype, {rows, columns}, 3, 0.02);
            const Tensor on_device = bench.put(x), maximum = bench.put({maximum_of(x)});
            const std::int64_t padded = (rows + 15) / 16 * 16;
            const Tensor y = empty(bench, {rows, columns}), transposed = empty(bench, {columns, padded});
            const Tensor scale = bench.make(DType::f32, {1});
            bench.run(Quantise{
                .x = on_device, .maximum = maximum, .y = y, .transposed = transposed, .scale = scale});
            const float factor = f8::largest / maximum_of(x);
            EXPECT_EQ(static_cast<float>(bench.values_of(scale)[0]), maximum_of(x) / f8::largest);
            const std::vector<double> exact = values(x);
            const std::vector<std::uint8_t> plain = bytes_of(bench, y), turned = bytes_of(bench, transposed);
            for (std::int64_t row = 0; row < padded; ++row)
                for (std::int64_t column = 0; column < columns; ++column) {
                    const auto at = static_cast<std::size_t>(row * columns + column);
                    const auto across = static_cast<std::size_t>(column * padded + row);
                    const std::uint8_t expected =
                        row < rows ? f8(static_cast<float>(exact[at]) * factor).bits : 0;
                    ASSERT_EQ(turned[across], expected) << row << ' ' << column;
                    if (row < rows) {
                        ASSERT_EQ(plain[at], expected) << row << ' ' << column;
                    }
                }

            // One of the two alone, and a part of the columns.
            const Tensor alone = empty(bench, {rows, columns});
            bench.run(Quantise{.x = on_device, .maximum = maximum, .y = alone, .scale = scale});
            EXPECT_EQ(bytes_of(bench, alone), plain);
            const Tensor part = empty(bench, {16, padded});
            bench.run(Quantise{.x = on_device.columns(columns - 16, 16),
                               .maximum = maximum,
                               .transposed = part,
                               .scale = scale});
            EXPECT_EQ(bytes_of(bench, part),
                      std::vector<std::uint8_t>(turned.end() - 16 * padded, turned.end()));
        }
}

TEST(Quantise, TakesZerosAndWhatIsNotFinite) {
    Workbench bench;
    const Tensor scale = bench.make(DType::f32, {1}), y = empty(bench, {1, 4});
    const auto quantised = [&](std::initializer_list<float> x, float maximum) {
        bench.run(Quantise{
            .x = row_of(bench, DType::f32, x), .maximum = bench.put({maximum}), .y = y, .scale = scale});
        std::vector<float> numbers;
        for (const std::uint8_t byte : bytes_of(bench, y)) numbers.push_back(number(byte));
        return numbers;
    };
    EXPECT_EQ(quantised({0, -0.f, 0, 0}, 0), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_TRUE(std::isfinite(bench.values_of(scale)[0]));
    // One huge value: the others are lost, and nothing else happens.
    EXPECT_EQ(quantised({3e38f, 1, -2, 0}, 3e38f), (std::vector<float>{448, 0, 0, 0}));
    EXPECT_EQ(quantised({1e-38f, 0, 0, -1e-38f}, 1e-38f)[1], 0);
    for (const float maximum : {infinity, not_a_number}) {
        const std::vector<float> numbers = quantised({maximum, 1, 2, 3}, maximum);
        EXPECT_TRUE(std::isnan(numbers[0]));
    }
}

/// The bytes that Quantise and QuantiseBlocks give for a transpose, so that products have the same bits.
TEST(Fp8Transpose, GivesTheNumbersOfQuantisedTransposes) {
    for (const std::int64_t groups : {1, 3})
        for (const auto& [rows, columns] :
             {std::pair{16, 16}, {48, 64}, {128, 128}, {272, 1008}, {1008, 144}, {512, 2048}}) {
            Workbench bench;
            const OwnedTensor x = random_normal(DType::bf16, {groups * rows, columns}, 3, 0.02);
            const Shape shape{groups * rows, columns}, turned_shape{groups * columns, rows};
            const Tensor y = empty(bench, shape), expected = empty(bench, turned_shape),
                         turned = empty(bench, turned_shape), scale = bench.make(DType::f32, {1});
            bench.run(Quantise{.x = bench.put(x),
                               .maximum = bench.put({maximum_of(x)}),
                               .y = y,
                               .transposed = expected,
                               .scale = scale,
                               .groups = groups});
            bench.run(Fp8Transpose{.x = y, .y = turned, .groups = groups});
            EXPECT_EQ(bytes_of(bench, turned), bytes_of(bench, expected));

            const auto scales = [&](const Shape& of) {
                return bench.make(DType::f32, shape_of_scales(Fp8Scales::squares, of[0], of[1], groups));
            };
            bench.run(QuantiseBlocks{.x = bench.put(x),
                                     .blocks = Fp8Scales::squares,
                                     .y = y,
                                     .scales = scales(shape),
                                     .transposed = expected,
                                     .transposed_scales = scales(turned_shape),
                                     .groups = groups});
            bench.run(Fp8Transpose{.x = y, .y = turned, .groups = groups});
            EXPECT_EQ(bytes_of(bench, turned), bytes_of(bench, expected));
        }
}

/// Every byte stays as it is, those of NaN and of zeros with a sign, too.
TEST(Fp8Transpose, MovesBytes) {
    Workbench bench;
    std::vector<std::uint8_t> bytes(256);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
    const Tensor x = empty(bench, {16, 16}), y = empty(bench, {16, 16});
    bench.backend().copy(bench.backend().main_stream(), Tensor(bytes.data(), DType::f8, {16, 16}), x);
    bench.run(Fp8Transpose{.x = x, .y = y});
    const std::vector<std::uint8_t> turned = bytes_of(bench, y);
    for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(turned[i % 16 * 16 + i / 16], bytes[i]);
}

TEST(Fp8Gemm, MultipliesScaledNumbers) {
    constexpr std::int64_t m = 77, n = 48, k = 208;
    for (const DType dtype : activation_types())
        for (const bool fast : {false, true}) {
            Workbench bench;
            const OwnedTensor a = random_normal(DType::f32, {m, k}, 1),
                              b = random_normal(DType::f32, {n, k}, 2);
            const Tensor a8 = empty(bench, {m, k}), b8 = empty(bench, {n, k});
            const Tensor scale_a = bench.make(DType::f32, {1}), scale_b = bench.make(DType::f32, {1});
            bench.run(Quantise{
                .x = bench.put(a), .maximum = bench.put({maximum_of(a)}), .y = a8, .scale = scale_a});
            bench.run(Quantise{
                .x = bench.put(b), .maximum = bench.put({maximum_of(b)}), .y = b8, .scale = scale_b});
            const OwnedTensor before = random_normal(dtype, {m, n}, 3), bias = random_normal(dtype, {n}, 4);
            const Tensor c = bench.put(before), plain = bench.make(dtype, {m, n});
            Fp8Gemm product{
                .a = a8, .b = b8, .c = plain, .scale_a = scale_a, .scale_b = scale_b, .fast = fast};
            bench.run(product);
            product.c = c;
            product.accumulate = true;
            bench.run(product);
            const Tensor biased = bench.make(dtype, {m, n});
            product.c = biased;
            product.accumulate = false;
            product.bias = bench.put(bias);
            bench.run(product);

            const std::vector<std::uint8_t> ab = bytes_of(bench, a8), bb = bytes_of(bench, b8);
            const double scale = bench.values_of(scale_a)[0] * bench.values_of(scale_b)[0];
            std::vector<double> expected, added, with_bias;
            for (std::size_t row = 0; row < m; ++row)
                for (std::size_t column = 0; column < n; ++column) {
                    double sum = 0;
                    for (std::size_t i = 0; i < k; ++i)
                        sum += static_cast<double>(number(ab[row * k + i])) * number(bb[column * k + i]);
                    expected.push_back(scale * sum);
                    added.push_back(scale * sum + values(before)[row * n + column]);
                    with_bias.push_back(scale * sum + values(bias)[column]);
                }
            // A GPU's sums of FP8 products are less exact than fp32, even if not `fast`.
            const bool exact = bench.backend().device() == Device::cpu;
            const double tolerance = dtype == DType::f32 ? (exact ? 1e-5 : 5e-4) : 5e-3;
            EXPECT_LE(relative_error(bench.values_of(plain), expected), tolerance);
            EXPECT_LE(relative_error(bench.values_of(c), added), tolerance);
            EXPECT_LE(relative_error(bench.values_of(biased), with_bias), tolerance);
        }
}

}  // namespace
}  // namespace drover::test
