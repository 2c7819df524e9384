#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::cross_entropy_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Both steps over one matrix of logits on the device, and their results.
struct CrossEntropy {
    CrossEntropy(Workbench& on, const Tensor& of, const Tensor& with, std::int64_t first = 0)
        : bench(on), logits(of), targets(with), first_id(first) {
        const Shape rows = {logits.size(0)};
        for (Tensor* tensor : {&max, &sum_exp, &target_logit, &loss}) *tensor = bench.make(DType::f32, rows);
        argmax = bench.make(DType::i32, rows);
        bench.run(CrossEntropyStatistics{.logits = logits,
                                         .targets = targets,
                                         .max = max,
                                         .sum_exp = sum_exp,
                                         .target_logit = target_logit,
                                         .argmax = argmax,
                                         .first_id = first_id});
    }

    void gradient(const Tensor& scale) {
        bench.run(CrossEntropyGradient{.logits = logits,
                                       .targets = targets,
                                       .max = max,
                                       .sum_exp = sum_exp,
                                       .target_logit = target_logit,
                                       .loss = loss,
                                       .scale = scale,
                                       .first_id = first_id});
    }

    Workbench& bench;
    Tensor logits, targets, max, sum_exp, target_logit, argmax, loss;
    std::int64_t first_id;
};

TEST(CrossEntropy, ExponentialIsAccurateEverywhere) {
    Workbench bench;
    // With max 0, sum 1, scale 1 and a target that is held elsewhere, a logit is replaced by its exponential.
    std::vector<float> x;
    for (int i = -110000; i <= 92000; ++i) x.push_back(static_cast<float>(i) * 0.001f);
    for (float special : {0.f, -0.f, 1e-30f, -1e-30f, infinity, -infinity, nan, 3e38f, -3e38f})
        x.push_back(special);
    const auto count = static_cast<std::int64_t>(x.size());
    const Tensor logits = bench.put(Tensor::of(x.data(), {1, count}));
    bench.run(CrossEntropyGradient{.logits = logits,
                                   .targets = bench.put({0}),
                                   .max = bench.put({0.f}),
                                   .sum_exp = bench.put({1.f}),
                                   .target_logit = bench.put({0.f}),
                                   .loss = bench.make(DType::f32, {1}),
                                   .scale = bench.put({1.f}),
                                   .first_id = 1});
    const std::vector<double> result = bench.values_of(logits);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        const auto nearest = static_cast<float>(exact);
        if (std::isnan(x[i])) {
            EXPECT_TRUE(std::isnan(result[i]));
        } else if (std::isinf(nearest) || nearest == 0) {
            EXPECT_EQ(result[i], nearest) << x[i];
        } else {
            const double ulp = std::nextafter(nearest, infinity) - static_cast<double>(nearest);
            worst = std::max(worst, std::abs(result[i] - exact) / ulp);
        }
    }
    EXPECT_LE(worst, bench.backend().device() == Device::cpu ? 1.5 : 2.0);  // expf of CUDA has 2
}

TEST(CrossEntropy, NotANumberAndInfinityReachTheLoss) {
    for (DType dtype : activation_types()) {
        Workbench bench;
        const std::vector<float> x = {1,         nan,       2,         0,          // a NaN
                                      1,         infinity,  2,         0,          // an infinite logit
                                      -infinity, -infinity, -infinity, -infinity,  // nothing is possible
                                      -infinity, 1,         2,         0,          // the target is impossible
                                      -infinity, 1,         1,         -infinity};  // others are
        const Tensor logits = bench.put(Tensor::of(x.data(), {5, 4}), dtype);
        CrossEntropy both(bench, logits, bench.put({0, 0, 0, 0, 1}));
        both.gradient(bench.put({1.f}));
        const std::vector<double> loss = bench.values_of(both.loss), gradient = bench.values_of(logits);
        EXPECT_TRUE(std::isnan(loss[0]) && std::isnan(loss[1]) && std::isnan(loss[2]));
        EXPECT_EQ(loss[3], infinity);
        EXPECT_NEAR(loss[4], std::log(2.0), 1e-6);
        EXPECT_TRUE(std::isnan(gradient[0]) && std::isnan(gradient[8]));
        EXPECT_EQ(std::vector<double>(gradient.end() - 4, gradient.end()),
                  (std::vector<double>{0, -0.5, 0.5, 0}));
        EXPECT_EQ(bench.values_of(both.argmax)[4], 1);
    }
}

TEST(CrossEntropy, AnImpossibleShareOfTheVocabularyAddsNothing) {
    Workbench bench;
    const std::vector<float> x = {-infinity, -infinity, -infinity, -infinity, nan, -infinity};
    CrossEntropy share(bench, bench.put(Tensor::of(x.data(), {2, 3})), bench.put({9, 9}));
    EXPECT_EQ(bench.values_of(share.max)[0], -infinity);
    EXPECT_EQ(bench.values_of(share.sum_exp)[0], 0);
    EXPECT_TRUE(std::isnan(bench.values_of(share.sum_exp)[1]));
}

TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
    Workbench bench;
    const std::vector<float> x = {1, 2, 3, nan, infinity, 0, 3, 2, 1};
    const Tensor logits = bench.put(Tensor::of(x.data(), {3, 3}));
    CrossEntropy both(bench, logits, bench.put({0, ignored_target, ignored_target}));
    both.gradient(bench.put({1.f}));
    const std::vector<double> loss = bench.values_of(both.loss), gradient = bench.values_of(logits);
    EXPECT_GT(loss[0], 0);
    EXPECT_EQ(loss[1], 0);
    EXPECT_EQ(loss[2], 0);
    EXPECT_LT(gradient[0], 0);
    EXPECT_EQ(std::vector<double>(gradient.begin() + 3, gradient.end()), std::vector<double>(6, 0));
    EXPECT_EQ(bench.values_of(both.target_logit)[1], 0);
}

TEST(CrossEntropy, TiesGoToTheLowestId) {
    Workbench bench;
    for (const std::int64_t width : {1, 7, 17, 33, 1000}) {
        const std::vector<float> equal(static_cast<std::size_t>(width), 0.5f);
        CrossEntropy flat(bench, bench.put(Tensor::of(equal.data(), {1, width})), bench.put({0}), 40);
        EXPECT_EQ(bench.values_of(flat.argmax)[0], 40) << width;
        // Negative logits: the empty lanes after a short row must not win.
        std::vector<float> negative(static_cast<std::size_t>(width), -5);
        negative.back() = -4;
        CrossEntropy last(bench, bench.put(Tensor::of(negative.data(), {1, width})), bench.put({0}));
        EXPECT_EQ(bench.values_of(last.argmax)[0], static_cast<double>(width - 1)) << width;
        EXPECT_EQ(bench.values_of(last.max)[0], -4) << width;
    }
}

TEST(CrossEntropy, TheFirstOfEqualLogitsIsFoundInWideRows) {
    Workbench bench;
    for (DType dtype : activation_types())
        for (const std::int64_t width : {5003, 20011, 40000})
            for (const std::int64_t first :
                 {std::int64_t{0}, std::int64_t{5}, width / 3, width / 2, width - 9})
                // After a column that shifts the rows from their alignment.
                for (const std::int64_t shift : {0, 1}) {
                    const OwnedTensor x = random_normal(DType::f32, {2, width + shift}, 1);
                    std::vector<float> elements(x.tensor().data<float>(),
                                                x.tensor().data<float>() + x.tensor().numel());
                    for (std::int64_t row : {0, 1})
                        for (const std::int64_t at : {first, first + 3, width - 1})
                            elements[static_cast<std::size_t>(row * (width + shift) + shift + at)] = 20;
                    const Tensor logits = bench.put(Tensor::of(elements.data(), {2, width + shift}), dtype)
                                              .columns(shift, width);
                    const CrossEntropy found(bench, logits, bench.put({0, 1}), 100);
                    EXPECT_EQ(bench.values_of(found.argmax),
                              std::vector<double>(2, static_cast<double>(100 + first)))
                        << name_of(dtype) << ' ' << width << ' ' << shift;
                    EXPECT_EQ(bench.values_of(found.max), std::vector<double>(2, 20));
                }
}

/// Also large logits: the exponentials of a 16-bit type are computed from rounded products.
TEST(CrossEntropy, WideRowsMatchTheReference) {
    constexpr std::int64_t rows = 3, width = 20011;
    constexpr double scale = 64;  // brings the gradient into the range of f16
    for (DType dtype : activation_types())
        for (const double mean : {0.0, -300.0, 3000.0}) {
            SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << mean);
            Workbench bench;
            const OwnedTensor x = random_normal(dtype, {rows, width + 3}, 1, 2, mean);
            const Tensor whole = bench.put(x), logits = whole.columns(1, width);
            const std::vector<std::int32_t> target_of = {0, 20010, 7777};
            CrossEntropy both(bench, logits, bench.put(Tensor::of(target_of.data(), {rows})));
            const std::vector<double> before = values(x.tensor().columns(1, width));
            both.gradient(bench.put({static_cast<float>(scale)}));
            const std::vector<double> loss = bench.values_of(both.loss),
                                      after = values(bench.get(whole).tensor().columns(1, width));
            std::vector<double> gradient;
            for (std::int64_t row = 0; row < rows; ++row) {
                const double* logit = before.data() + row * width;
                const double max = *std::max_element(logit, logit + width);
                const std::int64_t target = target_of[static_cast<std::size_t>(row)];
                double sum = 0;
                for (std::int64_t v = 0; v < width; ++v) sum += std::exp(logit[v] - max);
                EXPECT_NEAR(loss[static_cast<std::size_t>(row)], max - logit[target] + std::log(sum), 1e-4);
                for (std::int64_t v = 0; v < width; ++v)
                    gradient.push_back(scale * (std::exp(logit[v] - max) / sum - (v == target ? 1.0 : 0.0)));
            }
            EXPECT_LE(relative_error(after, gradient), dtype == DType::f32 ? 1e-5 : 1.0 / 256);
        }
}

/// −Σ target · log softmax with smoothed targets, and its gradient, in f64; parts of the vocabulary need only
/// the sum of all their logits.
TEST(CrossEntropy, LabelSmoothingIsCrossEntropyWithSmoothedTargets) {
    constexpr double smoothing = 0.2, scale = 0.25;
    constexpr std::int64_t rows = 5, width = 37, cut = 17;
    const OwnedTensor x = random_normal(DType::f32, {rows, width}, 7, 3);
    const std::vector<std::int32_t> target_of = {3, 36, ignored_target, 17, 0};
    Workbench bench;
    const Tensor targets = bench.put(Tensor::of(target_of.data(), {rows})), logits = bench.put(x);
    const std::vector<double> before = values(x);
    CrossEntropy whole(bench, bench.put(x), targets);  // for max, sum_exp and target_logit
    std::vector<double> loss;
    std::vector<float> sums(rows, 0);
    for (const auto& [first, count] : {std::pair(std::int64_t{0}, cut), std::pair(cut, width - cut)}) {
        const Tensor share = logits.columns(first, count), sum = bench.make(DType::f32, {rows});
        const auto scratch = [&] { return bench.make(DType::f32, {rows}); };
        bench.run(CrossEntropyStatistics{.logits = share,
                                         .targets = targets,
                                         .max = scratch(),
                                         .sum_exp = scratch(),
                                         .target_logit = scratch(),
                                         .argmax = bench.make(DType::i32, {rows}),
                                         .logit_sum = sum,
                                         .first_id = first});
        const std::vector<double> part = bench.values_of(sum);
        for (std::size_t row = 0; row < sums.size(); ++row) sums[row] += static_cast<float>(part[row]);
    }
    for (const auto& [first, count] : {std::pair(std::int64_t{0}, cut), std::pair(cut, width - cut)}) {
        bench.run(CrossEntropyGradient{.logits = logits.columns(first, count),
                                       .targets = targets,
                                       .max = whole.max,
                                       .sum_exp = whole.sum_exp,
                                       .target_logit = whole.target_logit,
                                       .loss = whole.loss,
                                       .scale = bench.put({static_cast<float>(scale)}),
                                       .first_id = first,
                                       .smoothing = static_cast<float>(smoothing),
                                       .logit_sum = bench.put(Tensor::of(sums.data(), {rows})),
                                       .vocabulary = width});
        loss = bench.values_of(whole.loss);
    }
    const std::vector<double> gradient = bench.values_of(logits);
    for (std::int64_t row = 0; row < rows; ++row) {
        const double* logit = before.data() + row * width;
        const std::int32_t target = target_of[static_cast<std::size_t>(row)];
        double sum = 0, expected = 0;
        for (std::int64_t v = 0; v < width; ++v) sum += std::exp(logit[v]);
        for (std::int64_t v = 0; v < width; ++v) {
            const double wanted = (v == target ? 1 - smoothing : 0) + smoothing / width;
            expected -= wanted * (logit[v] - std::log(sum));
            const double slope = target == ignored_target ? 0 : scale * (std::exp(logit[v]) / sum - wanted);
            EXPECT_NEAR(gradient[static_cast<std::size_t>(row * width + v)], slope, 1e-7) << row << ", " << v;
        }
        EXPECT_NEAR(loss[static_cast<std::size_t>(row)], target == ignored_target ? 0 : expected, 2e-6)
            << row;
    }
}

TEST(CrossEntropy, SharesOfAVocabularyCombineToTheWhole) {
    for (DType dtype : activation_types()) {
        Workbench bench;
        const std::int64_t rows = 9, width = 100, cut = 37;
        const OwnedTensor x = random_normal(dtype, {rows, width}, 1, 3);
        const Tensor targets = bench.put(random_integers({rows}, 2, 0, width)), scale = bench.put({0.5f});
        CrossEntropy whole(bench, bench.put(x), targets);
        // The two parts are column ranges of one matrix, so they are also strided.
        const Tensor logits = bench.put(x);
        CrossEntropy left(bench, logits.columns(0, cut), targets, 0);
        CrossEntropy right(bench, logits.columns(cut, width - cut), targets, cut);
        const auto max_l = bench.values_of(left.max), max_r = bench.values_of(right.max);
        const auto sum_l = bench.values_of(left.sum_exp), sum_r = bench.values_of(right.sum_exp);
        const auto target_l = bench.values_of(left.target_logit),
                   target_r = bench.values_of(right.target_logit);
        std::vector<float> max, sum_exp, target_logit;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
            const double top = std::max(max_l[row], max_r[row]);
            max.push_back(static_cast<float>(top));
            sum_exp.push_back(static_cast<float>(sum_l[row] * std::exp(max_l[row] - top) +
                                                 sum_r[row] * std::exp(max_r[row] - top)));
            target_logit.push_back(static_cast<float>(target_l[row] + target_r[row]));
        }
        for (CrossEntropy* share : {&left, &right}) {
            share->max = bench.put(Tensor::of(max.data(), {rows}));
            share->sum_exp = bench.put(Tensor::of(sum_exp.data(), {rows}));
            share->target_logit = bench.put(Tensor::of(target_logit.data(), {rows}));
            share->gradient(scale);
        }
        whole.gradient(scale);
        EXPECT_LE(relative_error(bench.get(left.loss), bench.get(whole.loss)), 1e-6);
        EXPECT_LE(relative_error(bench.get(right.loss), bench.get(whole.loss)), 1e-6);
        EXPECT_LE(relative_error(bench.get(logits), bench.get(whole.logits)),
                  dtype == DType::f32 ? 1e-6 : 1e-3);
    }
}

/// −Σ p · log p of whole rows and of two shares of the vocabulary, one of which cannot be chosen.
TEST(CrossEntropy, EntropyAndRightPredictions) {
    constexpr std::int64_t rows = 5, width = 1003, cut = 400;
    for (const DType dtype : activation_types()) {
        Workbench bench;
        OwnedTensor x = random_normal(dtype, {rows, width}, 3, 2);
        std::vector<double> logits = values(x);
        std::vector<std::int32_t> target_of;
        for (std::int64_t row = 0; row < rows; ++row) {
            const double* const logit = logits.data() + row * width;
            target_of.push_back(static_cast<std::int32_t>(std::max_element(logit, logit + width) - logit));
        }
        target_of[1] = ignored_target;
        target_of[3] = target_of[3] == 7 ? 8 : 7;
        const Tensor targets = bench.put(Tensor::of(target_of.data(), {rows}));
        const auto floats = [&] { return bench.make(DType::f32, {rows}); };
        const auto statistics_of = [&](const Tensor& share, std::int64_t first) {
            CrossEntropyStatistics op{.logits = share,
                                      .targets = targets,
                                      .max = floats(),
                                      .sum_exp = floats(),
                                      .target_logit = floats(),
                                      .argmax = bench.make(DType::i32, {rows}),
                                      .weighted_sum = floats(),
                                      .first_id = first};
            bench.run(op);
            return op;
        };
        const auto expect_results = [&](const CrossEntropyStatistics& of, const Tensor& share) {
            const Tensor entropy = floats(), correct = floats();
            bench.run(CrossEntropyGradient{.logits = share,
                                           .targets = targets,
                                           .max = of.max,
                                           .sum_exp = of.sum_exp,
                                           .target_logit = of.target_logit,
                                           .loss = floats(),
                                           .scale = bench.put({1.f}),
                                           .first_id = of.first_id,
                                           .weighted_sum = of.weighted_sum,
                                           .argmax = of.argmax,
                                           .entropy = entropy,
                                           .correct = correct});
            const std::vector<double> found = bench.values_of(entropy), right = bench.values_of(correct);
            for (std::int64_t row = 0; row < rows; ++row) {
                const auto at = static_cast<std::size_t>(row);
                double sum = 0, expected = 0;
                for (std::int64_t v = 0; v < width; ++v) sum += std::exp(logits[at * width + v]);
                for (std::int64_t v = 0; v < width; ++v) {
                    const double log_p = logits[at * width + v] - std::log(sum);
                    expected -= std::exp(log_p) * log_p;
                }
                EXPECT_NEAR(found[at], row == 1 ? 0 : expected, 2e-5) << name_of(dtype) << row;
                EXPECT_EQ(right[at], row == 1 || row == 3 ? 0 : 1) << row;
            }
        };
        const Tensor whole = bench.put(x);
        expect_results(statistics_of(whole, 0), whole);

        const Tensor halves = bench.put(x), left = halves.columns(0, cut),
                     right = halves.columns(cut, width - cut);
        CrossEntropyStatistics one = statistics_of(left, 0), other = statistics_of(right, cut);
        std::vector<float> max;
        const std::vector<double> max_one = bench.values_of(one.max), max_other = bench.values_of(other.max);
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
            max.push_back(static_cast<float>(std::max(max_one[row], max_other[row])));
        const Tensor largest = bench.put(Tensor::of(max.data(), {rows}));
        for (const CrossEntropyStatistics& share : {one, other})
            bench.run(CrossEntropyRescale{.local_max = share.max,
                                          .max = largest,
                                          .sum_exp = share.sum_exp,
                                          .argmax = share.argmax,
                                          .weighted_sum = share.weighted_sum});
        bench.run(Add{.into = one.sum_exp, .x = other.sum_exp});
        bench.run(Add{.into = one.weighted_sum, .x = other.weighted_sum});
        const std::vector<double> first = bench.values_of(one.argmax), second = bench.values_of(other.argmax);
        std::vector<std::int32_t> argmax;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
            argmax.push_back(static_cast<std::int32_t>(std::min(first[row], second[row])));
        one.max = largest;
        one.argmax = bench.put(Tensor::of(argmax.data(), {rows}));
        expect_results(one, left);
    }
}

/// A logit of −∞ has no part in the entropy.
TEST(CrossEntropy, ImpossibleTokensHaveNoEntropy) {
    Workbench bench;
    const std::vector<float> x = {0, -infinity, 0, -infinity};
    const auto floats = [&] { return bench.make(DType::f32, {1}); };
    const Tensor logits = bench.put(Tensor::of(x.data(), {1, 4})), targets = bench.put({0}), max = floats(),
                 sum_exp = floats(), target_logit = floats(), weighted = floats(), entropy = floats(),
                 argmax = bench.make(DType::i32, {1});
    bench.run(CrossEntropyStatistics{.logits = logits,
                                     .targets = targets,
                                     .max = max,
                                     .sum_exp = sum_exp,
                                     .target_logit = target_logit,
                                     .argmax = argmax,
                                     .weighted_sum = weighted});
    bench.run(CrossEntropyGradient{.logits = logits,
                                   .targets = targets,
                                   .max = max,
                                   .sum_exp = sum_exp,
                                   .target_logit = target_logit,
                                   .loss = floats(),
                                   .weighted_sum = weighted,
                                   .argmax = argmax,
                                   .entropy = entropy,
                                   .correct = floats()});
    EXPECT_NEAR(bench.values_of(entropy)[0], std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace drover::test::cross_entropy_test
