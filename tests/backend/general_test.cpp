#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"
#include "core/convert.h"

namespace drover::test::general_test {
namespace {

constexpr DType precisions[] = {DType::f32, DType::bf16, DType::f16};

TEST(Cast, GivesTheBitsOfTheScalarConversion) {
    // Rounding ties, the limits of subnormals and of overflow for each type, and random numbers.
    std::vector<float> samples = {0.f,
                                  -0.f,
                                  1.f,
                                  65504.f,
                                  65519.f,
                                  65520.f,
                                  65536.f,
                                  0x1p-14f,
                                  0x1p-24f,
                                  0x1p-25f,
                                  0x1.8p-25f,
                                  0x1p-126f,
                                  0x1p-149f,
                                  3.4e38f,
                                  0x1.01p0f,
                                  0x1.03p0f,
                                  0x1.002p0f,
                                  0x1.006p0f,
                                  std::numeric_limits<float>::infinity(),
                                  -std::numeric_limits<float>::infinity()};
    const OwnedTensor random = random_normal(DType::f32, {1013}, 1, 100);
    for (double x : values(random)) samples.push_back(static_cast<float>(x));
    const Shape shape = {static_cast<std::int64_t>(samples.size())};
    for (DType from : precisions)
        for (DType to : precisions) {
            Workbench bench;
            const OwnedTensor source = OwnedTensor::converted(Tensor::of(samples.data(), shape), from);
            const Tensor result = bench.make(to, shape);
            bench.run(Cast{.from = bench.put(source), .to = result});
            const OwnedTensor actual = bench.get(result), expected = OwnedTensor::converted(source, to);
            EXPECT_EQ(std::memcmp(actual.tensor().raw(), expected.tensor().raw(), expected.tensor().bytes()),
                      0)
                << name_of(from) << " to " << name_of(to);
        }
}

TEST(Cast, KeepsNotANumber) {
    for (DType from : precisions)
        for (DType to : precisions) {
            Workbench bench;
            // The smallest NaN of fp32 would become an infinity if its low bits were cut off.
            const float low_bits = std::bit_cast<float>(0x7F800001u);
            const Tensor result = bench.make(DType::f32, {1}), there = bench.make(to, {1});
            const Tensor source = from == DType::f32 ? bench.put({low_bits}) : bench.make(from, {1});
            bench.run(Cast{.from = source, .to = there});
            bench.run(Cast{.from = there, .to = result});
            EXPECT_TRUE(std::isnan(bench.values_of(result)[0])) << name_of(from) << " to " << name_of(to);
        }
}

TEST(Cast, StridedMatrices) {
    for (const std::int64_t width : {1, 7, 17, 33, 1000}) {
        Workbench bench;
        const OwnedTensor source = random_normal(DType::bf16, {5, width + 9}, 1);
        const Tensor target = bench.make(DType::f32, {5, width + 4});
        bench.run(Cast{.from = bench.put(source).columns(6, width), .to = target.columns(3, width)});
        const OwnedTensor result = bench.get(target);
        EXPECT_EQ(values(result.tensor().columns(3, width)), values(source.tensor().columns(6, width)));
        for (double gap : values(result.tensor().columns(0, 3))) EXPECT_TRUE(std::isnan(gap));
        for (double gap : values(result.tensor().columns(width + 3, 1))) EXPECT_TRUE(std::isnan(gap));
    }
}

TEST(Fill, EveryTypeAndOnlyTheView) {
    for (DType dtype :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u16, DType::u8}) {
        Workbench bench;
        const Tensor x = bench.make(dtype, {3, 2, 40});
        const double before = bench.values_of(x)[0];
        bench.run(Fill{.x = x.columns(5, 20), .value = 3});
        const OwnedTensor result = bench.get(x);
        EXPECT_EQ(values(result.tensor().columns(5, 20)), std::vector<double>(120, 3)) << name_of(dtype);
        for (const Tensor& gap : {result.tensor().columns(0, 5), result.tensor().columns(25, 15)})
            for (double value : values(gap))
                EXPECT_TRUE(value == before || (std::isnan(value) && std::isnan(before))) << name_of(dtype);
        bench.run(Fill{.x = x, .value = 7});
        EXPECT_EQ(bench.values_of(x), std::vector<double>(240, 7)) << name_of(dtype);
    }
}

TEST(Add, RoundsTheSumToTheTargetsType) {
    for (DType into_type : precisions)
        for (DType x_type : precisions)
            for (const std::int64_t count : {1, 7, 17, 33, 1000}) {
                Workbench bench;
                const OwnedTensor a = random_normal(into_type, {count}, 1),
                                  b = random_normal(x_type, {count}, 2);
                const Tensor into = bench.put(a);
                bench.run(Add{.into = into, .x = bench.put(b)});
                OwnedTensor sum(DType::f32, {count});
                for (std::int64_t i = 0; i < count; ++i)
                    sum.tensor().data<float>()[i] =
                        static_cast<float>(values(a)[static_cast<std::size_t>(i)]) +
                        static_cast<float>(values(b)[static_cast<std::size_t>(i)]);
                EXPECT_EQ(bench.values_of(into), values(OwnedTensor::converted(sum, into_type)));
            }
}

TEST(Sum, EverySizeAndAccumulates) {
    for (const std::int64_t count : {1, 7, 17, 33, 1000, 70001}) {
        Workbench bench;
        const OwnedTensor x = random_normal(DType::f32, {count}, 1, 1, 1);
        double expected = 0;
        for (double value : values(x)) expected += value;
        const Tensor out = bench.make(DType::f64, {1});
        bench.run(Sum{.x = bench.put(x), .out = out});
        EXPECT_NEAR(bench.values_of(out)[0], expected, 1e-11 * static_cast<double>(count));
        bench.run(Sum{.x = bench.put(x), .out = out, .accumulate = true});
        EXPECT_NEAR(bench.values_of(out)[0], 2 * expected, 1e-11 * static_cast<double>(count));
        bench.run(Sum{.x = bench.put(x), .out = out, .accumulate = true, .scale = -0.5});
        EXPECT_NEAR(bench.values_of(out)[0], 1.5 * expected, 1e-11 * static_cast<double>(count));
    }
}

TEST(Sum, OfDoublesKeepsTheirDigits) {
    Workbench bench;
    const Tensor out = bench.make(DType::f64, {1});
    bench.run(Sum{.x = bench.put({1.0, 1e-12}), .out = out, .scale = 4});
    EXPECT_EQ(bench.values_of(out)[0], 4 * (1.0 + 1e-12));
}

TEST(General, NothingToDoIsAllowed) {
    Workbench bench;
    const Tensor none = bench.make(DType::f32, {0, 5}), sum = bench.make(DType::f64, {1});
    bench.run(Fill{.x = none, .value = 1});
    bench.run(Cast{.from = none, .to = bench.make(DType::bf16, {0, 5})});
    bench.run(Add{.into = none, .x = none});
    bench.run(Swiglu{.gate_up = bench.make(DType::f32, {0, 10}), .y = none});
    bench.run(Sum{.x = bench.make(DType::f32, {0}), .out = sum});
    EXPECT_EQ(bench.values_of(sum)[0], 0);
}

}  // namespace
}  // namespace drover::test::general_test
