#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::moe_test {
namespace {

constexpr double f32_tolerance = 1e-6, bf16_tolerance = 1.0 / 256;

double tolerance_of(DType dtype) {
    return dtype == DType::f32 ? f32_tolerance : bf16_tolerance;
}

struct Mixture {
    std::int64_t tokens, experts, chosen;
    bool dense = false;  ///< every expert gets every token

    std::int64_t slots() const { return dense ? experts : chosen; }
    friend void PrintTo(const Mixture& m, std::ostream* out) {
        *out << m.tokens << " tokens, " << m.chosen << " of " << m.experts << " experts"
             << (m.dense ? ", dense" : "");
    }
};

/// The router written out in f64.
struct RouterReference {
    std::vector<double> probabilities, experts, weights, choices, sums;

    RouterReference(const Mixture& m, const std::vector<double>& logits, const std::vector<double>& counts) {
        const std::int64_t slots = m.slots();
        probabilities.resize(logits.size());
        experts.resize(static_cast<std::size_t>(m.tokens * slots));
        weights.assign(experts.size(), 0);
        choices.assign(static_cast<std::size_t>(m.chosen * m.experts), 0);
        sums.assign(static_cast<std::size_t>(m.experts), 0);
        for (std::int64_t n = 0; n < m.tokens; ++n) {
            const double* row = &logits[n * m.experts];
            double* p = &probabilities[n * m.experts];
            const double largest = *std::max_element(row, row + m.experts);
            double sum = 0;
            for (std::int64_t e = 0; e < m.experts; ++e) sum += p[e] = std::exp(row[e] - largest);
            for (std::int64_t e = 0; e < m.experts; ++e) p[e] /= sum;
            std::vector<std::int64_t> order(static_cast<std::size_t>(m.experts));
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, [&](auto a, auto b) { return row[a] > row[b]; });
            double chosen_sum = 0;
            for (std::int64_t j = 0; j < m.chosen; ++j) chosen_sum += p[order[j]];
            if (m.dense)
                for (std::int64_t e = 0; e < m.experts; ++e) experts[n * slots + e] = static_cast<double>(e);
            for (std::int64_t j = 0; j < m.chosen; ++j) {
                const std::int64_t slot = n * slots + (m.dense ? order[j] : j);
                experts[slot] = static_cast<double>(order[j]);
                weights[slot] = p[order[j]] / chosen_sum;
                if (counts[n] != 0) choices[j * m.experts + order[j]] += 1;
            }
            for (std::int64_t e = 0; e < m.experts; ++e) sums[e] += counts[n] != 0 ? p[e] : 0;
        }
    }
};

class Mixtures : public testing::TestWithParam<Mixture> {
  protected:
    Mixture m = GetParam();
    Workbench bench;
    /// Few distinct values, so that ties occur.
    OwnedTensor logits =
        OwnedTensor::converted(random_normal(DType::bf16, {m.tokens, m.experts}, 3), DType::f32);
    OwnedTensor counts = random_integers({m.tokens}, 4, 0, 3);
};

TEST_P(Mixtures, RouterChoosesTheLikeliest) {
    const OwnedTensor choices(DType::f64, {m.chosen, m.experts}), sums(DType::f64, {m.experts});
    std::fill_n(choices.tensor().data<double>(), choices.tensor().numel(), 5.0);
    std::fill_n(sums.tensor().data<double>(), sums.tensor().numel(), 0.25);
    const Tensor probabilities = bench.make(DType::f32, {m.tokens, m.experts});
    const Tensor experts = bench.make(DType::i32, {m.tokens, m.slots()}),
                 weights = bench.make(DType::f32, {m.tokens, m.slots()});
    const Tensor device_choices = bench.put(choices), device_sums = bench.put(sums);
    bench.run(Router{.logits = bench.put(logits),
                     .counts = bench.put(counts),
                     .probabilities = probabilities,
                     .experts = experts,
                     .weights = weights,
                     .choices = device_choices,
                     .probability_sums = device_sums,
                     .chosen = m.chosen});
    RouterReference expected(m, values(logits), values(counts));
    for (double& x : expected.choices) x += 5;
    for (double& x : expected.sums) x += 0.25;
    EXPECT_LE(relative_error(bench.values_of(probabilities), expected.probabilities), f32_tolerance);
    EXPECT_EQ(bench.values_of(experts), expected.experts);
    EXPECT_LE(relative_error(bench.values_of(weights), expected.weights), f32_tolerance);
    EXPECT_EQ(bench.values_of(device_choices), expected.choices);
    EXPECT_LE(relative_error(bench.values_of(device_sums), expected.sums), f32_tolerance);
}

TEST_P(Mixtures, RouterBackward) {
    const std::vector<double> every(static_cast<std::size_t>(m.tokens), 1.0);
    const RouterReference forward(m, values(logits), every);
    const OwnedTensor dweights = random_normal(DType::f32, {m.tokens, m.slots()}, 5);
    const OwnedTensor balance = random_normal(DType::f32, {m.experts}, 6);
    const auto put = [&](DType dtype, const Shape& shape, const std::vector<double>& from) {
        const OwnedTensor host(dtype, shape);
        for (std::size_t i = 0; i < from.size(); ++i)
            if (dtype == DType::i32)
                host.tensor().data<std::int32_t>()[i] = static_cast<std::int32_t>(from[i]);
            else
                host.tensor().data<float>()[i] = static_cast<float>(from[i]);
        return bench.put(host);
    };
    const std::vector<double> d = values(dweights), b = values(balance), counted = values(counts);
    std::vector<double> expected(static_cast<std::size_t>(m.tokens * m.experts));
    for (std::int64_t n = 0; n < m.tokens; ++n) {
        const double* p = &forward.probabilities[n * m.experts];
        std::vector<double> dp(static_cast<std::size_t>(m.experts), 0);
        double sum = 0, mean = 0, inner = 0;
        for (std::int64_t s = n * m.slots(); s < (n + 1) * m.slots(); ++s) {
            const auto e = static_cast<std::int64_t>(forward.experts[s]);
            sum += forward.weights[s] > 0 ? p[e] : 0;
            mean += d[s] * forward.weights[s];
        }
        for (std::int64_t s = n * m.slots(); s < (n + 1) * m.slots(); ++s)
            if (forward.weights[s] > 0)
                dp[static_cast<std::int64_t>(forward.experts[s])] += (d[s] - mean) / sum;
        for (std::int64_t e = 0; e < m.experts; ++e) {
            dp[e] += counted[n] != 0 ? b[e] : 0;
            inner += dp[e] * p[e];
        }
        for (std::int64_t e = 0; e < m.experts; ++e) expected[n * m.experts + e] = p[e] * (dp[e] - inner);
    }
    for (DType dtype : activation_types()) {
        const Tensor dlogits = bench.make(dtype, {m.tokens, m.experts});
        bench.run(
            RouterBackward{.probabilities = put(DType::f32, {m.tokens, m.experts}, forward.probabilities),
                           .experts = put(DType::i32, {m.tokens, m.slots()}, forward.experts),
                           .weights = put(DType::f32, {m.tokens, m.slots()}, forward.weights),
                           .dweights = bench.put(dweights),
                           .counts = bench.put(counts),
                           .balance = bench.put(balance),
                           .dlogits = dlogits});
        EXPECT_LE(relative_error(bench.values_of(dlogits), expected), tolerance_of(dtype)) << name_of(dtype);
    }
}

TEST_P(Mixtures, SortKeepsTheOrderOfSlots) {
    const std::int64_t count = m.tokens * m.slots();
    const OwnedTensor experts =
        random_integers({m.tokens, m.slots()}, 7, 0, static_cast<std::int32_t>(m.experts));
    const Tensor offsets = bench.make(DType::i32, {m.experts + 1});
    const Tensor row_of_slot = bench.make(DType::i32, {count}), slot_of_row = bench.make(DType::i32, {count});
    bench.run(SortByExpert{.experts = bench.put(experts),
                           .offsets = offsets,
                           .row_of_slot = row_of_slot,
                           .slot_of_row = slot_of_row});
    const std::vector<double> expert_of = values(experts);
    std::vector<double> order(expert_of.size()), row(expert_of.size()), expected_offsets;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](double a, double b) {
        return expert_of[static_cast<std::size_t>(a)] < expert_of[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < order.size(); ++i)
        row[static_cast<std::size_t>(order[i])] = static_cast<double>(i);
    for (std::int64_t e = 0; e <= m.experts; ++e)
        expected_offsets.push_back(static_cast<double>(
            std::ranges::count_if(expert_of, [&](double x) { return x < static_cast<double>(e); })));
    EXPECT_EQ(bench.values_of(slot_of_row), order);
    EXPECT_EQ(bench.values_of(row_of_slot), row);
    EXPECT_EQ(bench.values_of(offsets), expected_offsets);
}

INSTANTIATE_TEST_SUITE_P(Backend, Mixtures,
                         testing::Values(Mixture{1, 1, 1}, Mixture{5, 4, 2}, Mixture{300, 8, 2},
                                         Mixture{300, 8, 2, true}, Mixture{129, 8, 8}, Mixture{1500, 67, 6},
                                         Mixture{40, 130, 3, true}));

TEST(Experts, BalanceLoss) {
    Workbench bench;
    const std::int64_t chosen = 2, experts = 40;
    const OwnedTensor choices(DType::f64, {chosen, experts}), sums(DType::f64, {experts});
    for (std::int64_t i = 0; i < chosen * experts; ++i)
        choices.tensor().data<double>()[i] = static_cast<double>(i % 13);
    for (std::int64_t e = 0; e < experts; ++e)
        sums.tensor().data<double>()[e] = 0.5 + static_cast<double>(e % 7);
    const Tensor loss = bench.make(DType::f64, {1}), balance = bench.make(DType::f32, {experts});
    bench.run(BalanceLoss{.choices = bench.put(choices),
                          .probability_sums = bench.put(sums),
                          .loss = loss,
                          .balance = balance,
                          .coefficient = 0.02,
                          .scale = 3});
    const std::vector<double> c = values(choices), s = values(sums);
    const double tokens = std::accumulate(c.begin(), c.begin() + experts, 0.0);
    double expected = 0;
    std::vector<double> gradient;
    for (std::int64_t e = 0; e < experts; ++e) {
        const double factor = 0.02 * experts * (c[e] + c[experts + e]) / tokens / tokens;
        expected += factor * s[e];
        gradient.push_back(3 * factor);
    }
    EXPECT_NEAR(bench.values_of(loss)[0], expected, 1e-12 * expected);
    EXPECT_LE(relative_error(bench.values_of(balance), gradient), f32_tolerance);
}

/// Rows whose width is a multiple of what is loaded at a time, and rows whose width is not.
class ExpertRows : public testing::TestWithParam<std::tuple<DType, std::int64_t>> {
  protected:
    static constexpr std::int64_t tokens = 37, slots = 3, rows = tokens * slots;
    DType dtype = std::get<0>(GetParam());
    std::int64_t width = std::get<1>(GetParam());
    Workbench bench;
    OwnedTensor slot_of_row{DType::i32, {rows}}, row_of_slot{DType::i32, {rows}};
    OwnedTensor weights = random_normal(DType::f32, {tokens, slots}, 8);

    ExpertRows() {
        for (std::int32_t row = 0; row < rows; ++row) {
            const std::int32_t slot = row * 7 % rows;  // rows and 7 have no common divisor
            slot_of_row.tensor().data<std::int32_t>()[row] = slot;
            row_of_slot.tensor().data<std::int32_t>()[slot] = row;
        }
    }
};

TEST_P(ExpertRows, TokensToRowsAndBack) {
    const OwnedTensor x = random_normal(dtype, {tokens, width}, 9),
                      given = random_normal(dtype, {rows, width}, 10);
    const Tensor made = bench.make(dtype, {rows, width});
    bench.run(TokensToRows{.x = bench.put(x), .slot_of_row = bench.put(slot_of_row), .rows = made});
    const std::vector<double> token = values(x), row = values(given), w = values(weights);
    const auto slot_of = values(slot_of_row);
    std::vector<double> expected_rows(static_cast<std::size_t>(rows * width));
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < width; ++i)
            expected_rows[r * width + i] = token[static_cast<std::int64_t>(slot_of[r]) / slots * width + i];
    EXPECT_EQ(bench.values_of(made), expected_rows);

    for (const bool weighted : {false, true}) {
        const Tensor y = bench.make(dtype, {tokens, width});
        bench.run(RowsToTokens{.rows = bench.put(given),
                               .row_of_slot = bench.put(row_of_slot),
                               .weights = weighted ? bench.put(weights) : Tensor(),
                               .y = y});
        std::vector<double> expected(static_cast<std::size_t>(tokens * width), 0);
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < width; ++i) {
                const auto slot = static_cast<std::int64_t>(slot_of[r]);
                expected[slot / slots * width + i] += (weighted ? w[slot] : 1) * row[r * width + i];
            }
        EXPECT_LE(relative_error(bench.values_of(y), expected), tolerance_of(dtype)) << weighted;
    }
}

TEST_P(ExpertRows, WeightRows) {
    const std::int64_t hidden = width + 8;
    const OwnedTensor activated = random_normal(dtype, {rows, width}, 11),
                      dactivated = random_normal(dtype, {rows, width}, 12);
    const OwnedTensor dy = random_normal(dtype, {rows, hidden}, 13);
    const Tensor device_dactivated = bench.put(dactivated), device_dy = bench.put(dy);
    const Tensor dweights = bench.make(DType::f32, {tokens, slots});
    bench.run(WeightRows{.activated = bench.put(activated),
                         .dactivated = device_dactivated,
                         .dy = device_dy,
                         .slot_of_row = bench.put(slot_of_row),
                         .weights = bench.put(weights),
                         .dweights = dweights});
    const std::vector<double> a = values(activated), w = values(weights), slot_of = values(slot_of_row);
    std::vector<double> d = values(dactivated), y = values(dy), expected(static_cast<std::size_t>(rows), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
        const auto slot = static_cast<std::int64_t>(slot_of[r]);
        for (std::int64_t i = 0; i < width; ++i) {
            expected[slot] += a[r * width + i] * d[r * width + i];
            d[r * width + i] *= w[slot];
        }
        for (std::int64_t i = 0; i < hidden; ++i) y[r * hidden + i] *= w[slot];
    }
    EXPECT_LE(relative_error(bench.values_of(dweights), expected), f32_tolerance);
    EXPECT_LE(relative_error(bench.values_of(device_dactivated), d), tolerance_of(dtype));
    EXPECT_LE(relative_error(bench.values_of(device_dy), y), tolerance_of(dtype));
}

TEST_P(ExpertRows, GroupedProducts) {
    const std::vector<std::int32_t> offsets = {0, 0, 20, 21, 21, rows, rows};  // also experts without rows
    const std::int64_t experts = static_cast<std::int64_t>(offsets.size()) - 1, out = 24;
    const OwnedTensor x = random_normal(dtype, {rows, width}, 14), dy = random_normal(dtype, {rows, out}, 15);
    const OwnedTensor matrices = random_normal(dtype, {experts * out, width}, 16);
    const Tensor device_offsets = bench.put(Tensor::of(offsets.data(), {experts + 1}));
    const Tensor y = bench.make(dtype, {rows, out}), dx = bench.make(dtype, {rows, width});
    const Tensor gradient = bench.make(DType::f32, {experts * out, width});
    using Use = GroupedGemm::Use;
    const auto run = [&](Use use, const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate) {
        bench.run(GroupedGemm{
            .use = use, .a = a, .b = b, .c = c, .offsets = device_offsets, .accumulate = accumulate});
    };
    run(Use::forward, bench.put(x), bench.put(matrices), y, false);
    run(Use::data_gradient, bench.put(dy), bench.put(matrices), dx, false);
    run(Use::weight_gradient, bench.put(dy), bench.put(x), gradient, false);
    const std::vector<double> once = bench.values_of(gradient);
    run(Use::weight_gradient, bench.put(dy), bench.put(x), gradient, true);

    const std::vector<double> vx = values(x), vdy = values(dy), vw = values(matrices);
    std::vector<double> expected_y(vdy.size(), 0), expected_dx(vx.size(), 0), expected_gradient(vw.size(), 0);
    for (std::int64_t e = 0; e < experts; ++e)
        for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
            for (std::int64_t o = 0; o < out; ++o)
                for (std::int64_t i = 0; i < width; ++i) {
                    const std::int64_t at = (e * out + o) * width + i;
                    expected_y[r * out + o] += vx[r * width + i] * vw[at];
                    expected_dx[r * width + i] += vdy[r * out + o] * vw[at];
                    expected_gradient[at] += vdy[r * out + o] * vx[r * width + i];
                }
    EXPECT_LE(relative_error(bench.values_of(y), expected_y), tolerance_of(dtype));
    EXPECT_LE(relative_error(bench.values_of(dx), expected_dx), tolerance_of(dtype));
    EXPECT_LE(relative_error(once, expected_gradient), f32_tolerance);
    for (double& g : expected_gradient) g *= 2;
    EXPECT_LE(relative_error(bench.values_of(gradient), expected_gradient), f32_tolerance);
}

INSTANTIATE_TEST_SUITE_P(Backend, ExpertRows,
                         testing::Combine(testing::ValuesIn(activation_types()),
                                          testing::Values(std::int64_t{8}, std::int64_t{29},
                                                          std::int64_t{2064})));

}  // namespace
}  // namespace drover::test::moe_test
