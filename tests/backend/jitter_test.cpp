#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend_under_test.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"
#include "core/counter_rng.h"

namespace drover::test::jitter_test {
namespace {

constexpr std::int64_t tokens = 67, width = 130;
constexpr float amplitude = 0.25f;

/// The scalars of update t.
Tensor scalars_of(Workbench& bench, float t) {
    OwnedTensor scalars(DType::f32, {StepScalar::count});
    scalars.tensor().data<float>()[StepScalar::step] = t;
    return bench.put(scalars);
}

struct Address {
    std::uint64_t seed = 7;
    float step = 3;
    std::uint64_t leaf = 99;
    std::int64_t first_token = 0;
};

OwnedTensor jittered(const Tensor& x, const Address& address, float how_much = amplitude,
                     bool added = false) {
    Workbench bench;
    const Tensor on_device = bench.put(x);
    bench.run(JitterTokens{.x = on_device,
                           .scalars = scalars_of(bench, address.step),
                           .first_token = address.first_token,
                           .amplitude = how_much,
                           .seed = address.seed,
                           .leaf = address.leaf,
                           .added = added});
    return bench.get(on_device);
}

OwnedTensor ones() {
    OwnedTensor x(DType::f32, {tokens, width});
    std::fill_n(x.tensor().data<float>(), x.tensor().numel(), 1.0f);
    return x;
}

TEST(JitterTokens, MultipliesByTheNoiseOfEachElement) {
    const OwnedTensor x = random_normal(DType::f32, {tokens, width}, 1);
    const Address address{.first_token = 1'000'003};
    const std::vector<double> y = values(jittered(x, address)), before = values(x);
    const CounterRng rng(address.seed, 3);
    for (std::int64_t i = 0; i < tokens * width; ++i) {
        const auto element = static_cast<std::uint64_t>(address.first_token * width + i);
        const double factor = 1 + amplitude * (2.0 * rng.uniform(address.leaf, element) - 1);
        const auto at = static_cast<std::size_t>(i);
        ASSERT_NEAR(y[at], before[at] * factor, 1e-6 * std::fabs(before[at])) << i;
    }
}

TEST(JitterTokens, AddsTheSameNoiseWithoutItsMean) {
    const OwnedTensor x = random_normal(DType::f32, {tokens, width}, 4);
    const std::vector<double> sums = values(jittered(x, {}, amplitude, true)), before = values(x);
    const std::vector<double> factors = values(jittered(ones(), {}));
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], before[i] + factors[i] - 1, 1e-6) << i;
}

TEST(JitterTokens, NoiseHasItsBoundsMeanAndVariance) {
    const std::vector<double> y = values(jittered(ones(), {}));
    const auto [least, most] = std::minmax_element(y.begin(), y.end());
    EXPECT_GE(*least, 1 - amplitude);
    EXPECT_LT(*most, 1 + amplitude + 1e-6);
    double sum = 0, squares = 0;
    for (const double value : y) sum += value, squares += (value - 1) * (value - 1);
    const auto count = static_cast<double>(y.size());
    EXPECT_NEAR(sum / count, 1, 5 * amplitude / std::sqrt(3 * count));
    EXPECT_NEAR(squares / count, amplitude * amplitude / 3, 0.05 * amplitude * amplitude / 3);
}

TEST(JitterTokens, DoesNotDependOnHowTokensAreCut) {
    const OwnedTensor x = random_normal(DType::f32, {tokens, width}, 2);
    const OwnedTensor whole = jittered(x, {.first_token = 11});
    for (const std::int64_t begin : {0, 1, 40, 66}) {
        const Tensor part = x.tensor().rows(begin, tokens - begin);
        EXPECT_TRUE(same_bits(jittered(part, {.first_token = 11 + begin}),
                              whole.tensor().rows(begin, tokens - begin)))
            << begin;
    }
}

TEST(JitterTokens, EverythingInTheAddressCounts) {
    const OwnedTensor x = ones(), y = jittered(x, {});
    EXPECT_TRUE(same_bits(y, jittered(x, {})));
    for (const Address& other :
         {Address{.seed = 8}, Address{.step = 4}, Address{.leaf = 100}, Address{.first_token = 1}})
        EXPECT_FALSE(same_bits(y, jittered(x, other)));
    EXPECT_TRUE(same_bits(x, jittered(x, {}, 0)));
}

TEST(JitterTokens, Bf16IsTheFp32ProductRounded) {
    const OwnedTensor x = random_normal(DType::bf16, {tokens, width}, 3);
    const OwnedTensor exact = jittered(OwnedTensor::converted(x, DType::f32), {});
    EXPECT_TRUE(same_bits(jittered(x, {}), OwnedTensor::converted(exact, DType::bf16)));
}

TEST(JitterTokensDeathTest, StridedRowsAreRefused) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Workbench bench;
    const Tensor x = bench.make(DType::f32, {4, 6});
    EXPECT_DEATH(bench.run(JitterTokens{.x = x.columns(0, 3), .scalars = scalars_of(bench, 1)}),
                 "jitter_tokens: x .*is strided");
}

}  // namespace
}  // namespace drover::test::jitter_test
