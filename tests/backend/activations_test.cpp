#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::activations_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Rope, RotatesAColumnRangeOfThePackedProjection) {
    for (DType dtype : activation_types()) {
        Workbench bench;
        // [q | k | v] with two, one and one heads of 6: q and k are rotated in place.
        const OwnedTensor before = random_normal(dtype, {5, 24}, 1);
        const Tensor packed = bench.put(before);
        const Tensor cosine = bench.put(random_normal(DType::f32, {3, 3}, 2));
        const Tensor sine = bench.put(random_normal(DType::f32, {3, 3}, 3));
        const OwnedTensor positions = random_integers({5}, 4, 0, 3);
        for (const auto& [first, heads] : {std::pair{0, 2}, std::pair{12, 1}})
            bench.run(Rope{.x = packed.columns(first, heads * 6).split_columns(heads, 6),
                           .cosine = cosine,
                           .sine = sine,
                           .positions = bench.put(positions)});
        std::vector<double> expected = values(before);
        const std::vector<double> c = bench.values_of(cosine), s = bench.values_of(sine);
        for (std::size_t token = 0; token < 5; ++token)
            for (std::size_t head = 0; head < 3; ++head)
                for (std::size_t pair = 0; pair < 3; ++pair) {
                    double& low = expected[token * 24 + head * 6 + pair];
                    double& high = expected[token * 24 + head * 6 + pair + 3];
                    const auto position =
                        static_cast<std::size_t>(positions.tensor().data<std::int32_t>()[token]);
                    const double a = low, b = high, cosa = c[position * 3 + pair],
                                 sina = s[position * 3 + pair];
                    low = a * cosa - b * sina;
                    high = b * cosa + a * sina;
                }
        const OwnedTensor after = bench.get(packed);
        EXPECT_LE(relative_error(values(after), expected), dtype == DType::f32 ? 1e-6 : 1.0 / 256);
        EXPECT_EQ(values(after.tensor().columns(18, 6)), values(before.tensor().columns(18, 6)));  // v
    }
}

/// Heads of common sizes, of which each GPU thread handles several, in both directions.
TEST(Rope, RotatesManyHeadsBackAndForth) {
    struct Case {
        std::int64_t tokens, heads, size;
    };
    for (DType dtype : activation_types())
        for (const Case& c : {Case{37, 24, 64}, Case{1, 24, 64}, Case{37, 5, 64}, Case{9, 3, 128},
                              Case{33, 1, 16}, Case{5, 6, 8}}) {
            SCOPED_TRACE(testing::Message() << c.tokens << ' ' << c.heads << ' ' << c.size);
            Workbench bench;
            const std::int64_t pairs = c.size / 2, columns = c.heads * c.size, whole = columns + 2 * c.size;
            const OwnedTensor before = random_normal(dtype, {c.tokens, whole}, 1);
            const Tensor packed = bench.put(before);
            std::vector<float> cosines, sines;
            for (std::int64_t i = 0; i < 50 * pairs; ++i) {
                cosines.push_back(std::cos(0.37f * static_cast<float>(i)));
                sines.push_back(std::sin(0.37f * static_cast<float>(i)));
            }
            const OwnedTensor positions = random_integers({c.tokens}, 4, 0, 50);
            Rope rope{.x = packed.columns(0, columns).split_columns(c.heads, c.size),
                      .cosine = bench.put(Tensor::of(cosines.data(), {50, pairs})),
                      .sine = bench.put(Tensor::of(sines.data(), {50, pairs})),
                      .positions = bench.put(positions)};
            bench.run(rope);
            std::vector<double> expected = values(before);
            for (std::int64_t token = 0; token < c.tokens; ++token)
                for (std::int64_t head = 0; head < c.heads; ++head)
                    for (std::int64_t pair = 0; pair < pairs; ++pair) {
                        const auto at = static_cast<std::size_t>(token * whole + head * c.size + pair);
                        const auto angle = static_cast<std::size_t>(
                            positions.tensor().data<std::int32_t>()[token] * pairs + pair);
                        double &low = expected[at], &high = expected[at + static_cast<std::size_t>(pairs)];
                        const double a = low, b = high;
                        low = a * cosines[angle] - b * sines[angle];
                        high = b * cosines[angle] + a * sines[angle];
                    }
            const double tolerance = dtype == DType::f32 ? 1e-6 : 1.0 / 256;
            EXPECT_LE(relative_error(bench.values_of(packed), expected), tolerance);
            rope.inverse = true;
            bench.run(rope);
            EXPECT_LE(relative_error(bench.values_of(packed), values(before)), 2 * tolerance);
            EXPECT_EQ(values(bench.get(packed).tensor().columns(columns, 2 * c.size)),
                      values(before.tensor().columns(columns, 2 * c.size)));
        }
}

TEST(Swiglu, BackwardMayOverwriteItsInput) {
    for (DType dtype : activation_types())
        for (const std::int64_t width : {1, 7, 17, 33, 1000}) {
            Workbench bench;
            const Tensor gate_up = bench.put(random_normal(dtype, {3, 2 * width}, 1, 2));
            const Tensor dy = bench.put(random_normal(dtype, {3, width}, 2));
            const Tensor apart = bench.make(dtype, {3, 2 * width});
            bench.run(SwigluBackward{.gate_up = gate_up, .dy = dy, .dgate_up = apart});
            bench.run(SwigluBackward{.gate_up = gate_up, .dy = dy, .dgate_up = gate_up});
            EXPECT_EQ(bench.values_of(gate_up), bench.values_of(apart)) << width;
        }
}

TEST(Swiglu, BackwardMakesTheOutputAgainBitForBit) {
    for (DType dtype : activation_types())
        for (const std::int64_t width : {1, 7, 17, 33, 1000}) {
            Workbench bench;
            const Tensor gate_up = bench.put(random_normal(dtype, {3, 2 * width}, 1, 2));
            const Tensor dy = bench.put(random_normal(dtype, {3, width}, 2));
            const Tensor y = bench.make(dtype, {3, width}), wide = bench.make(dtype, {3, width + 9});
            const Tensor apart = bench.make(dtype, {3, 2 * width});
            bench.run(Swiglu{.gate_up = gate_up, .y = y});
            bench.run(SwigluBackward{.gate_up = gate_up, .dy = dy, .dgate_up = apart});
            bench.run(SwigluBackward{
                .gate_up = gate_up, .dy = dy, .dgate_up = gate_up, .y = wide.columns(5, width)});
            EXPECT_EQ(values(bench.get(wide).tensor().columns(5, width)), bench.values_of(y)) << width;
            EXPECT_EQ(bench.values_of(gate_up), bench.values_of(apart)) << width;
        }
}

TEST(Swiglu, StridedOperands) {
    Workbench bench;
    const Tensor gate_up = bench.put(random_normal(DType::f32, {3, 60}, 1));
    const Tensor wide = bench.make(DType::f32, {3, 40}), y = bench.make(DType::f32, {3, 19});
    const Tensor packed = bench.make(DType::f32, {3, 38});
    bench.run(Cast{.from = gate_up.columns(5, 38), .to = packed});
    bench.run(Swiglu{.gate_up = packed, .y = y});
    bench.run(Swiglu{.gate_up = gate_up.columns(5, 38), .y = wide.columns(9, 19)});
    EXPECT_EQ(values(bench.get(wide).tensor().columns(9, 19)), bench.values_of(y));
}

TEST(Swiglu, ExtremeGates) {
    Workbench bench;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    // Gates, each followed by an up of 2.
    const Tensor gate_up =
        bench.put({100.f, -100.f, 1e30f, -1e30f, infinity, nan, 0.f, 2.f, 2.f, 2.f, 2.f, 2.f, 2.f, 2.f})
            .view({1, 14});
    const Tensor y = bench.make(DType::f32, {1, 7});
    bench.run(Swiglu{.gate_up = gate_up, .y = y});
    const std::vector<double> result = bench.values_of(y);
    EXPECT_EQ(result[0], 200);
    EXPECT_NEAR(result[1], 0, 1e-30);
    EXPECT_EQ(result[2], 2e30f);
    EXPECT_EQ(result[3], 0);
    EXPECT_EQ(result[4], infinity);
    EXPECT_TRUE(std::isnan(result[5]));
    EXPECT_EQ(result[6], 0);
}

TEST(Embedding, IdsNotHeldHereGiveZeros) {
    for (DType y_dtype : {DType::bf16, DType::f32}) {
        Workbench bench;
        const OwnedTensor weight = random_normal(DType::bf16, {4, 33}, 1);
        const Tensor y = bench.make(y_dtype, {5, 33});
        bench.run(Embedding{
            .ids = bench.put({10, 9, 13, 14, 12}), .weight = bench.put(weight), .y = y, .first_id = 10});
        const OwnedTensor result = bench.get(y);
        const std::vector<double> zeros(33, 0);
        EXPECT_EQ(values(result.tensor().rows(0, 1)), values(weight.tensor().rows(0, 1)));
        EXPECT_EQ(values(result.tensor().rows(1, 1)), zeros);
        EXPECT_EQ(values(result.tensor().rows(2, 1)), values(weight.tensor().rows(3, 1)));
        EXPECT_EQ(values(result.tensor().rows(3, 1)), zeros);
        EXPECT_EQ(values(result.tensor().rows(4, 1)), values(weight.tensor().rows(2, 1)));
    }
}

TEST(Embedding, CopiesRowsOfEveryWidth) {
    for (DType dtype : activation_types())
        for (const std::int64_t width : {1, 8, 100, 768, 1032, 4096, 4099}) {
            SCOPED_TRACE(width);
            Workbench bench;
            const OwnedTensor weight = random_normal(dtype, {11, width}, 1),
                              ids = random_integers({37}, 2, 0, 11);
            const Tensor given = bench.put(weight), given_ids = bench.put(ids);
            const Tensor y = bench.make(dtype, {37, width}),
                         floats = bench.make(DType::f32, {37, width + 16});
            bench.run(Embedding{.ids = given_ids, .weight = given, .y = y});
            bench.run(Embedding{.ids = given_ids, .weight = given, .y = floats.columns(8, width)});
            const OwnedTensor result = bench.get(y), wider = bench.get(floats);
            for (std::int64_t token = 0; token < 37; ++token) {
                const std::int32_t id = ids.tensor().data<std::int32_t>()[token];
                const std::vector<double> expected = values(weight.tensor().rows(id, 1));
                EXPECT_EQ(values(result.tensor().rows(token, 1)), expected);
                EXPECT_EQ(values(wider.tensor().rows(token, 1).columns(8, width)), expected);
            }
            for (const double untouched : values(wider.tensor().columns(8 + width, 8)))
                EXPECT_TRUE(std::isnan(untouched));
        }
}

/// Few and many tokens; a GPU sorts few with one block. Some ids have many tokens, most have none.
/// The head moves ids as floats (integers, subnormal numbers as floats, and signalling NaNs).
TEST(Embedding, CopiesBits) {
    test::Workbench bench;
    std::vector<std::uint32_t> bits = {0u, 1u, 128255u, 0x00400000u, 0x7F800001u, 0xFFBFFFFFu, 0x80000000u};
    const auto rows = static_cast<std::int64_t>(bits.size());
    const Tensor weight = bench.put(Tensor(bits.data(), DType::f32, {rows, 1}));
    const Tensor y = bench.make(DType::f32, {9, 1});
    bench.run(Embedding{.ids = bench.put({6, 5, -1, 4, 3, 2, 1, 0, 7}), .weight = weight, .y = y});
    const test::OwnedTensor copied = bench.get(y);
    const auto* got = static_cast<const std::uint32_t*>(static_cast<const Tensor&>(copied).raw());
    const std::vector<std::uint32_t> expected = {bits[6], bits[5], 0,       bits[4], bits[3],
                                                 bits[2], bits[1], bits[0], 0};
    EXPECT_EQ(std::vector<std::uint32_t>(got, got + 9), expected);
}

TEST(Embedding, BackwardOfFewAndManyTokens) {
    constexpr std::int64_t vocabulary = 1500;
    for (const std::int64_t width : {3, 16})
        for (const std::int64_t tokens : {1, 32, 33, 1000, 16383, 16384, 16385, 20000}) {
            SCOPED_TRACE(testing::Message() << tokens << ' ' << width);
            Workbench bench;
            const OwnedTensor dy = random_normal(DType::bf16, {tokens, width}, 1);
            OwnedTensor ids = random_integers({tokens}, 2, 0, 1000);
            auto* const id = ids.tensor().data<std::int32_t>();
            for (std::int64_t token = 0; token < tokens; token += 3) id[token] = 700;
            const Tensor dweight = bench.make(DType::f32, {vocabulary, width});
            EmbeddingBackward backward{
                .ids = bench.put(ids), .dy = bench.put(dy), .dweight = dweight, .first_id = 100};
            bench.run(backward);
            std::vector<double> expected(static_cast<std::size_t>(vocabulary * width), 0);
            const std::vector<double> d = values(dy);
            for (std::int64_t token = 0; token < tokens; ++token)
                for (std::int64_t i = 0; i < width && id[token] >= 100; ++i)
                    expected[static_cast<std::size_t>((id[token] - 100) * width + i)] +=
                        d[static_cast<std::size_t>(token * width + i)];
            const std::vector<double> first = bench.values_of(dweight);
            EXPECT_LE(relative_error(first, expected), 1e-5);
            for (std::size_t i = static_cast<std::size_t>(900 * width); i < first.size(); ++i)
                EXPECT_EQ(first[i], 0);
            bench.run(backward);
            EXPECT_EQ(bench.values_of(dweight), first);
            backward.accumulate = true;
            bench.run(backward);
            for (double& value : expected) value *= 2;
            EXPECT_LE(relative_error(bench.values_of(dweight), expected), 1e-5);
        }
}

TEST(Embedding, BackwardRoundsARowsSumOnce) {
    Workbench bench;
    // 1 + 300 · 2⁻⁹ = 1.5859375 is a bf16 number, but adding 2⁻⁹ to 1 in bf16 gives 1 every time.
    std::vector<float> dy(301, 0x1p-9f);
    dy[0] = 1;
    const std::vector<std::int32_t> ids(301, 6);
    const Tensor dweight = bench.make(DType::bf16, {3, 1});
    EmbeddingBackward backward{.ids = bench.put(Tensor::of(ids.data(), {301})),
                               .dy = bench.put(Tensor::of(dy.data(), {301, 1}), DType::bf16),
                               .dweight = dweight,
                               .first_id = 5};
    bench.run(backward);
    EXPECT_EQ(bench.values_of(dweight), (std::vector<double>{0, 1.5859375, 0}));
    backward.accumulate = true;
    bench.run(backward);
    EXPECT_EQ(bench.values_of(dweight), (std::vector<double>{0, 3.171875, 0}));
}

TEST(Embedding, BackwardOfWideRowsSkipsPaddingAndForeignIds) {
    for (DType dtype : activation_types()) {
        Workbench bench;
        const std::int64_t width = 700;  // several blocks of columns
        const OwnedTensor dy = random_normal(dtype, {200, width}, 1), ids = random_integers({200}, 2, 0, 12);
        const Tensor dweight = bench.make(DType::f32, {6, width + 9});
        bench.run(EmbeddingBackward{.ids = bench.put(ids),
                                    .dy = bench.put(dy),
                                    .dweight = dweight.columns(4, width),
                                    .first_id = 3,
                                    .padding_id = 5});
        std::vector<double> expected(static_cast<std::size_t>(6 * width), 0);
        const std::vector<double> d = values(dy);
        for (std::size_t token = 0; token < 200; ++token) {
            const std::int32_t id = ids.tensor().data<std::int32_t>()[token];
            if (id < 3 || id >= 9 || id == 5) continue;
            for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i)
                expected[static_cast<std::size_t>((id - 3) * width) + i] +=
                    d[token * static_cast<std::size_t>(width) + i];
        }
        EXPECT_LE(relative_error(values(bench.get(dweight).tensor().columns(4, width)), expected), 1e-6);
    }
}

TEST(BiasGradient, SumsManyRowsAndAccumulates) {
    for (DType dtype : activation_types())
        for (const std::int64_t width : {1, 7, 17, 33, 1000}) {
            SCOPED_TRACE(width);
            Workbench bench;
            const DType of_dy = dtype == DType::f32 ? DType::bf16 : dtype;
            const OwnedTensor dy = random_normal(of_dy, {300, width + 5}, 1, 1, 1);
            const Tensor device = bench.put(dy), dbias = bench.make(dtype, {width});
            std::vector<double> expected(static_cast<std::size_t>(width), 0);
            const std::vector<double> d = values(dy.tensor().columns(2, width));
            for (std::size_t i = 0; i < d.size(); ++i) expected[i % expected.size()] += d[i];
            const double tolerance = dtype == DType::f32 ? 1e-6 : 1.0 / 256;
            BiasGradient gradient{.dy = device.columns(2, width), .dbias = dbias};
            bench.run(gradient);
            EXPECT_LE(relative_error(bench.values_of(dbias), expected), tolerance);
            gradient.accumulate = true;
            bench.run(gradient);
            for (double& value : expected) value *= 2;
            EXPECT_LE(relative_error(bench.values_of(dbias), expected), 2 * tolerance);
        }
}

}  // namespace
}  // namespace drover::test::activations_test
