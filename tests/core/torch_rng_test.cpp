#include "core/torch_rng.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"

namespace drover {
namespace {

std::vector<float> normals(TorchRng& generator, std::size_t count, double mean = 0.0,
                           double deviation = 1.0) {
    std::vector<float> out(count);
    generator.fill_normal(out, mean, deviation);
    return out;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return same_bits(std::span<const float>(a), std::span<const float>(b));
}

/// FNV-1a over the bytes.
std::uint64_t digest(const std::vector<float>& values) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const float value : values) {
        for (std::uint32_t bits = std::bit_cast<std::uint32_t>(value), i = 0; i < 4; ++i, bits >>= 8) {
            hash = (hash ^ (bits & 0xFFu)) * 0x100000001B3u;
        }
    }
    return hash;
}

/// Both generators must continue identically, including cached normals.
void expect_same_state(TorchRng a, TorchRng b, const std::string& what) {
    EXPECT_EQ(a.position(), b.position()) << what;
    EXPECT_TRUE(same_bits(normals(a, 3), normals(b, 3))) << what;
    for (int i = 0; i < 1300; ++i) ASSERT_EQ(a.next32(), b.next32()) << what << ", output " << i;
}

class Threads {
  public:
    explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before_); }

  private:
    int before_;
};

TEST(TorchRng, OutputsAreThoseOfTheStandardEngine) {
    for (const std::uint64_t seed : {0ull, 1ull, 42ull, 0xFFFFFFFFull, 0x123456789ABCDEFull}) {
        TorchRng generator(seed);
        std::mt19937 reference(static_cast<std::uint32_t>(seed));
        for (int i = 0; i < 2000; ++i) ASSERT_EQ(generator.next32(), reference()) << seed << " " << i;
        EXPECT_EQ(generator.position(), 2000u);
        const std::uint64_t high = reference();
        EXPECT_EQ(generator.next64(), high << 32 | reference());
    }
}

TEST(TorchRng, SeedStartsOver) {
    TorchRng generator(1);
    normals(generator, 1);
    generator.seed(7);
    expect_same_state(generator, TorchRng(7), "after seed");
}

TEST(TorchRng, SkipIsDiscard) {
    for (const std::uint64_t before : {0u, 1u, 623u, 624u, 700u}) {
        for (const std::uint64_t count :
             {0ull, 1ull, 623ull, 624ull, 625ull, 1247ull, 1248ull, 19936ull, 19937ull, 2999999ull,
              3000000ull, 3000623ull, 3000624ull, 3001248ull, 5000001ull}) {
            TorchRng generator(42);
            std::mt19937 reference(42);
            for (std::uint64_t i = 0; i < before; ++i) generator.next32();
            reference.discard(before + count);
            generator.skip(count);
            ASSERT_EQ(generator.position(), before + count);
            for (int i = 0; i < 700; ++i)
                ASSERT_EQ(generator.next32(), reference()) << before << " " << count;
        }
    }
}

TEST(TorchRng, LongSkipsAddUp) {
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> distances = {
        {(1ull << 32) + 5, (1ull << 32) - 77},
        {8'030'261'248ull, 123'456'789'012ull},
        {1ull << 62, (1ull << 62) - 1},
        {0x5555555555555555ull, 0x2AAAAAAAAAAAAAAAull},
        {(1ull << 63) - 700, 699},
    };
    for (const auto& [first, second] : distances) {
        TorchRng stepwise(3), reversed(3), direct(3);
        stepwise.next32(), reversed.next32(), direct.next32();
        stepwise.skip(first), stepwise.skip(second);
        reversed.skip(second), reversed.skip(first);
        direct.skip(first + second);
        expect_same_state(stepwise, direct, "first then second");
        expect_same_state(reversed, direct, "second then first");
        EXPECT_EQ(direct.position(), 1 + first + second);
    }
}

TEST(TorchRng, PublishedUniforms) {
    TorchRng generator(42);
    std::vector<float> values(4);
    generator.fill_uniform(values, 0.0, 1.0);
    EXPECT_EQ(values, (std::vector<float>{0.8822692632675171f, 0.9150039553642273f, 0.38286375999450684f,
                                          0.9593056440353394f}));
}

TEST(TorchRng, UniformIntervalIsHalfOpen) {
    // Twelve of these draws round to 101 and become 100, like eleven others.
    TorchRng generator(42);
    std::vector<float> values(1u << 22);
    generator.fill_uniform(values, 100.0, 101.0);
    EXPECT_EQ(std::ranges::count(values, 101.0f), 0);
    EXPECT_EQ(std::ranges::count(values, 100.0f), 23);
}

TEST(TorchRng, PublishedNormals) {
    TorchRng generator(42);
    const std::vector<float> first = normals(generator, 40, 0.0, 0.02);
    const std::vector<float> expected = {0.038538303f,  0.029745681f, 0.018014343f,
                                         -0.042110417f, 0.013568369f, -0.024690896f};
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(first[i], expected[i]) << i;
    generator.seed(42);
    const std::vector<float> few = normals(generator, 4);
    const std::vector<float> expected_few = {0.33669037f, 0.12880941f, 0.23446237f, 0.23033303f};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(few[i], expected_few[i]) << i;
}

TEST(TorchRng, LargeFillHasTheBitsOfPyTorch) {
    TorchRng generator(42);
    EXPECT_EQ(digest(normals(generator, 1000003, 0.0, 0.02)), 0x7eee1cc132614c6fu);
}

TEST(TorchRng, PublishedPermutations) {
    using Permutation = std::vector<std::int64_t>;
    EXPECT_EQ(TorchRng(42).randperm(10), (Permutation{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
    EXPECT_EQ(TorchRng(43).randperm(10), (Permutation{8, 4, 9, 0, 5, 1, 6, 7, 2, 3}));
    EXPECT_EQ(TorchRng(42).randperm(20),
              (Permutation{2, 14, 18, 15, 1, 10, 0, 4, 6, 11, 8, 3, 7, 17, 13, 12, 19, 5, 16, 9}));
    EXPECT_EQ(TorchRng(43).randperm(20),
              (Permutation{8, 16, 13, 19, 9, 10, 0, 17, 4, 14, 11, 12, 18, 6, 15, 7, 3, 1, 5, 2}));
    Permutation thousand = TorchRng(42).randperm(1000);
    thousand.resize(10);
    EXPECT_EQ(thousand, (Permutation{542, 618, 816, 68, 94, 215, 60, 585, 942, 165}));
    EXPECT_TRUE(TorchRng(42).randperm(0).empty());
}

TEST(TorchRng, LargePermutationIsTheInsideOutShuffle) {
    std::vector<std::int64_t> permutation(5000), expected(5000);
    TorchRng(7).fill_large_randperm(permutation);
    std::mt19937 engine(7);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        std::uint64_t draw = std::uint64_t{engine()} << 32;
        draw |= engine();
        const std::size_t other = draw % (i + 1);
        expected[i] = expected[other];
        expected[other] = static_cast<std::int64_t>(i);
    }
    EXPECT_EQ(permutation, expected);
    EXPECT_EQ(std::set<std::int64_t>(permutation.begin(), permutation.end()).size(), permutation.size());
}

TEST(TorchRng, PublishedInitialisationOfATinyModel) {
    // V 64, H 32, I 48, one layer, 4 heads, 2 key-value heads: everything is drawn at construction and again
    // afterwards.
    const std::vector<std::pair<std::uint64_t, double>> linears = {
        {1024, 0.335646048}, {512, 0.319541127},   {512, 0.363547867}, {1024, 0.020952980},
        {1536, 0.218666613}, {1536, -0.299730841}, {1536, 0.286764863}};
    TorchRng generator(42);
    const auto check = [&](std::uint64_t count, double sum, const std::vector<float>& first) {
        const std::vector<float> values = normals(generator, count, 0.0, 0.02);
        for (std::size_t i = 0; i < first.size(); ++i)
            EXPECT_NEAR(values[i], first[i], 5e-9) << count << " " << i;
        EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), sum, 1e-6) << count;
    };
    generator.skip_normal(64 * 32);
    for (const auto& [count, sum] : linears) generator.skip_uniform(count);
    check(64 * 32, 0.597634101, {-0.005755551f, -0.021071870f, -0.031947203f});
    check(linears[0].first, linears[0].second, {0.002639494f, -0.020090736f, 0.002495283f});
    for (std::size_t i = 1; i < linears.size(); ++i) check(linears[i].first, linears[i].second, {});
    generator.skip_uniform(64 * 32);
    check(64 * 32, -1.570325075, {0.001949440f, -0.023190834f, 0.021906173f});
}

template <class T>
void expect_bits(const Tensor& golden, const std::vector<T>& values, const std::string& what) {
    ASSERT_EQ(static_cast<std::size_t>(golden.numel()), values.size()) << what;
    EXPECT_TRUE(same_bits(std::span<const T>(golden.data<T>(), values.size()), std::span<const T>(values)))
        << what;
}

template <class T>
std::vector<T> draw_elements(TorchRng& generator, const Json& draw) {
    std::vector<T> out(draw.at("size").get<std::size_t>());
    if (draw.at("op") == "normal") {
        generator.fill_normal(out, draw.at("mean").get<double>(), draw.at("std").get<double>());
    } else {
        generator.fill_uniform(out, draw.at("low").get<double>(), draw.at("high").get<double>());
    }
    return out;
}

std::vector<std::int64_t> draw_integers(TorchRng& generator, const Json& draw) {
    const std::string op = draw.at("op");
    const auto size = draw.at("size").get<std::int64_t>();
    if (op == "randperm") return generator.randperm(size);
    std::vector<std::int64_t> out(static_cast<std::size_t>(size));
    for (std::int64_t& value : out) {
        if (op == "raw") value = generator.next32();
        if (op == "randint") value = generator.randint(draw.at("low"), draw.at("high"));
        if (op == "randint64") value = generator.random_int64();
    }
    return out;
}

TEST(TorchRng, SequencesOfDrawsHaveTheBitsOfPyTorch) {
    const SafetensorsFile file(test::golden_path("rng.safetensors"));
    const Json cases = parse_json(file.header().metadata.at("cases"), "rng.safetensors");
    std::set<std::string> operations;
    for (const Json& golden : cases) {
        TorchRng generator(golden.at("seed").get<std::uint64_t>());
        std::size_t index = 0;
        for (Json draw : golden.at("draws")) {
            const std::string name = golden.at("name").get<std::string>() + "." + std::to_string(index++);
            const Tensor expected = file.tensor(name);
            const std::string op = draw.at("op");
            operations.insert(op);
            if (op == "rand") draw.update({{"low", 0.0}, {"high", 1.0}, {"dtype", "float32"}});
            if (!draw.contains("dtype")) {
                expect_bits(expected, draw_integers(generator, draw), name);
            } else if (draw.at("dtype") == "float32") {
                expect_bits(expected, draw_elements<float>(generator, draw), name);
            } else {
                expect_bits(expected, draw_elements<bf16>(generator, draw), name);
            }
        }
    }
    EXPECT_EQ(operations.size(), 7u);
}

TEST(TorchRng, NormalsHaveNormalMoments) {
    TorchRng generator(11);
    const std::size_t count = 1u << 20;
    const std::vector<float> values = normals(generator, count, 3.0, 2.0);
    double sums[5] = {};
    for (const float value : values) {
        const double z = (value - 3.0) / 2.0;
        for (double power = 1.0, k = 0; k < 5; ++k, power *= z) sums[static_cast<int>(k)] += power;
    }
    const double standard_error = 1.0 / std::sqrt(static_cast<double>(count));
    EXPECT_NEAR(sums[1] / static_cast<double>(count), 0.0, 5.0 * standard_error);
    EXPECT_NEAR(sums[2] / static_cast<double>(count), 1.0, 5.0 * standard_error * std::sqrt(2.0));
    EXPECT_NEAR(sums[3] / static_cast<double>(count), 0.0, 5.0 * standard_error * std::sqrt(15.0));
    EXPECT_NEAR(sums[4] / static_cast<double>(count), 3.0, 5.0 * standard_error * std::sqrt(96.0));
}

template <class T>
void expect_ranges_of(std::uint64_t count, bool with_kept_normal) {
    TorchRng generator(99);
    generator.skip(count);
    if (with_kept_normal) normals(generator, 1);
    TorchRng whole = generator;
    std::vector<T> all(count);
    whole.fill_normal(all, 0.5, 0.02);
    const TorchRng untouched = generator;
    const std::uint64_t step = count > 100 ? count / 7 : 1;
    for (std::uint64_t begin = 0; begin <= count; begin += step) {
        for (std::uint64_t size : {0ull, 1ull, 5ull, 16ull, 17ull, 40ull, 1024ull, 1300ull, ~0ull}) {
            size = std::min(size, count - begin);
            std::vector<T> part(size);
            generator.normal_slice({1, count, 0, 1, begin, size}, part, 0.5, 0.02);
            ASSERT_TRUE(same_bits(std::span<const T>(part), std::span<const T>(all).subspan(begin, size)))
                << count << " " << begin << " " << size;
        }
    }
    expect_same_state(generator, untouched, "after ranges");
}

TEST(TorchRng, RangeIsPartOfTheWholeFill) {
    for (const std::uint64_t count :
         {1u, 2u, 7u, 15u, 16u, 17u, 31u, 32u, 33u, 47u, 64u, 1000u, 1024u, 5003u}) {
        for (const bool kept : {false, true}) {
            expect_ranges_of<float>(count, kept);
            expect_ranges_of<bf16>(count, kept);
            expect_ranges_of<f16>(count, kept);
        }
    }
    TorchRng generator(99);
    std::vector<float> part(20);
    generator.normal_range(5003, 4990, std::span(part).first(13), 0.0, 1.0);
    const std::vector<float> all = normals(generator, 5003);
    EXPECT_TRUE(std::equal(all.begin() + 4990, all.end(), part.begin()));
}

TEST(TorchRng, RangeFarIntoAHugeFill) {
    // Two ways to get the same elements: the range, and a fresh fill after skipping what precedes it.
    const std::uint64_t begin = 16 * 500'000'000ull;
    std::vector<float> part(100);
    const TorchRng generator(8);
    generator.normal_range(begin + 1'000'000, begin, part, 0.0, 1.0);
    TorchRng skipped(8);
    skipped.skip(begin);
    std::vector<float> expected = normals(skipped, 112);
    expected.resize(100);
    EXPECT_TRUE(same_bits(part, expected));
}

TEST(TorchRng, SliceIsPartOfTheWholeMatrix) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {1, 40}, {3, 5}, {5, 3}, {7, 13}, {16, 16}, {33, 50}, {20, 1030}, {40, 7}}) {
        const TorchRng generator(17);
        TorchRng whole = generator;
        const std::vector<float> all = normals(whole, rows * columns);
        for (std::uint64_t row_begin = 0; row_begin < rows; row_begin += 1 + rows / 4) {
            for (std::uint64_t column_begin = 0; column_begin < columns; column_begin += 1 + columns / 3) {
                const MatrixSlice slice{rows,         columns,
                                        row_begin,    (rows - row_begin + 1) / 2,
                                        column_begin, (columns - column_begin + 1) / 2};
                std::vector<float> part(slice.row_count * slice.column_count), expected;
                generator.normal_slice(slice, part, 0.0, 1.0);
                for (std::uint64_t row = 0; row < slice.row_count; ++row) {
                    const auto begin =
                        all.begin() + static_cast<std::ptrdiff_t>((row_begin + row) * columns + column_begin);
                    expected.insert(expected.end(), begin,
                                    begin + static_cast<std::ptrdiff_t>(slice.column_count));
                }
                ASSERT_TRUE(same_bits(part, expected))
                    << rows << "x" << columns << " " << row_begin << " " << column_begin;
            }
        }
    }
}

TEST(TorchRng, ThreadCountDoesNotShow) {
    const std::size_t count = 3'500'005;
    const MatrixSlice columns{3500, 1000, 100, 3300, 250, 500};
    const auto draw = [&](int threads) {
        const Threads scope(threads);
        TorchRng generator(13);
        std::vector<float> normal = normals(generator, count, 0.0, 0.02), uniform(count), slice(3300 * 500);
        generator.fill_uniform(uniform, -1.0, 1.0);
        generator.normal_slice(columns, slice, 0.0, 1.0);
        return std::tuple(normal, uniform, slice, generator);
    };
    const auto [normal_1, uniform_1, slice_1, generator_1] = draw(1);
    for (const int threads : {2, 3}) {
        const auto [normal_n, uniform_n, slice_n, generator_n] = draw(threads);
        EXPECT_TRUE(same_bits(normal_1, normal_n)) << threads;
        EXPECT_TRUE(same_bits(uniform_1, uniform_n)) << threads;
        EXPECT_TRUE(same_bits(slice_1, slice_n)) << threads;
        expect_same_state(generator_1, generator_n, "after parallel fills");
    }
    TorchRng skipped(13);
    skipped.skip_normal(count);
    skipped.skip_uniform(count);
    expect_same_state(skipped, generator_1, "after skipping the fills");
}

TEST(TorchRng, SkippingAFillIsLikeDoingIt) {
    for (const std::uint64_t kept : {0u, 1u, 2u}) {
        for (std::uint64_t count = 0; count < 50; ++count) {
            TorchRng filled(21);
            normals(filled, kept);
            for (const DType dtype : {DType::f32, DType::bf16}) {
                TorchRng skipped = filled;
                const std::uint64_t expected_position =
                    filled.position() + filled.draws_for_normal(count, dtype);
                std::vector<bf16> halves(count);
                if (dtype == DType::f32) normals(filled, count);
                if (dtype == DType::bf16) filled.fill_normal(halves, 0.0, 1.0);
                skipped.skip_normal(count, dtype);
                EXPECT_EQ(filled.position(), expected_position);
                expect_same_state(skipped, filled, std::to_string(kept) + " then " + std::to_string(count));
            }
        }
    }
}

}  // namespace
}  // namespace drover
