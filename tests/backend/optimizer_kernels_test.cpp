#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::optimizer_kernels_test {
namespace {

TEST(SumOfSquares, EverySizeAndType) {
    for (const std::int64_t count : {1, 7, 17, 33, 1000, 70001}) {
        Workbench bench;
        std::vector<Tensor> tensors;
        std::vector<double> expected;
        for (DType dtype : activation_types()) {
            const OwnedTensor x = random_normal(dtype, {count}, static_cast<unsigned>(tensors.size()));
            tensors.push_back(bench.put(x));
            expected.push_back(0);
            for (double element : values(x)) expected.back() += element * element;
        }
        const Tensor sums = bench.make(DType::f64, {static_cast<std::int64_t>(tensors.size())});
        bench.run(SumOfSquares{.tensors = tensors, .sums = sums});
        const std::vector<double> found = bench.values_of(sums);
        // A GPU sums eight squares at a time in fp32.
        const double tolerance = tests_use_cuda() ? 2e-7 : 1e-12;
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(found[i], expected[i], tolerance * expected[i]) << count << ", tensor " << i;
    }
}

TEST(SumOfSquares, SquaresBeyondTheRangeOfFp32) {
    Workbench bench;
    const Tensor tensors[] = {bench.put({1e25f, 1e-25f})}, sums = bench.make(DType::f64, {1});
    bench.run(SumOfSquares{.tensors = tensors, .sums = sums});
    EXPECT_NEAR(bench.values_of(sums)[0] / 1e50, 1, 1e-6);
}

/// gradient_norm and clip_factor for sums that give the norm `norm`.
std::pair<double, double> clip(double norm, float max_norm) {
    Workbench bench;
    const double part = norm * norm / 2;
    const Tensor scalars = bench.make(DType::f32, {StepScalar::count});
    bench.run(ClipFactor{.sums = bench.put({part, part}), .scalars = scalars, .max_norm = max_norm});
    const std::vector<double> result = bench.values_of(scalars);
    for (int other : {StepScalar::learning_rate, StepScalar::loss_scale, StepScalar::bias_correction1,
                      StepScalar::bias_correction2})
        EXPECT_TRUE(std::isnan(result[static_cast<std::size_t>(other)]))
            << "scalar " << other << " was written";
    return {result[StepScalar::gradient_norm], result[StepScalar::clip_factor]};
}

TEST(ClipFactor, FollowsTheNorm) {
    EXPECT_NEAR(clip(5, 1).first, 5, 1e-6);
    EXPECT_NEAR(clip(5, 1).second, 1 / (5 + 1e-6), 1e-7);
    EXPECT_EQ(clip(0.5, 1).second, 1);
    EXPECT_EQ(clip(0, 1).second, 1);
    EXPECT_EQ(clip(5, 0).second, 1);
    EXPECT_EQ(clip(5, -1).second, 1);
    EXPECT_TRUE(std::isnan(clip(std::nan(""), 1).second));
    EXPECT_EQ(clip(std::numeric_limits<double>::infinity(), 1).second, 0);
}

TEST(ClipFactor, TakesOutWhatTheGradientsAreTooLargeBy) {
    Workbench bench;
    const Tensor scalars = bench.make(DType::f32, {StepScalar::count});
    const auto clip_scaled = [&](double sum, float max_norm) {
        bench.run(ClipFactor{
            .sums = bench.put({sum}), .scalars = scalars, .max_norm = max_norm, .gradient_scale = 64});
        const std::vector<double> result = bench.values_of(scalars);
        return std::pair(result[StepScalar::gradient_norm], result[StepScalar::clip_factor]);
    };
    EXPECT_EQ(clip_scaled(64.0 * 64 * 25, 1), std::pair(5.0, clip(5, 1).second / 64));
    EXPECT_EQ(clip_scaled(64.0 * 64 / 4, 1), std::pair(0.5, 1.0 / 64));
    EXPECT_EQ(clip_scaled(64.0 * 64 * 25, 0), std::pair(5.0, 1.0 / 64));
}

/// StepScalar::skips for a norm and a loss.
double skips(double norm, double loss, bool guarded, bool with_loss) {
    Workbench bench;
    const Tensor scalars = bench.make(DType::f32, {StepScalar::count});
    bench.run(ClipFactor{.sums = bench.put({norm * norm}),
                         .scalars = scalars,
                         .max_norm = 1,
                         .guarded = guarded,
                         .loss = with_loss ? bench.put({loss}) : Tensor()});
    return bench.values_of(scalars)[StepScalar::skips];
}

TEST(ClipFactor, SkipsWhatIsNotFiniteWhenGuarded) {
    const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(skips(1, 1, true, true), 0);
    EXPECT_EQ(skips(nan, 1, true, true), 1);
    EXPECT_EQ(skips(infinity, 1, true, false), 1);
    EXPECT_EQ(skips(1, nan, true, true), 1);
    EXPECT_EQ(skips(1, -infinity, true, true), 1);
    EXPECT_EQ(skips(1, nan, true, false), 0);
    EXPECT_EQ(skips(nan, nan, false, true), 0);
}

TEST(AdamW, MixedTypesMatchTheReference) {
    const double learning_rate = 0.01, correction1 = 0.19, correction2 = 0.002, decay = 0.1, factor = 0.5;
    const std::vector<DType> types = activation_types();
    for (DType param_type : types)
        for (DType gradient_type : types)
            for (DType m_type : types)
                for (DType v_type : types)
                    for (bool with_master : {false, true}) {
                        SCOPED_TRACE(testing::Message()
                                     << name_of(param_type) << ' ' << name_of(gradient_type) << ' '
                                     << name_of(m_type) << ' ' << name_of(v_type) << ' ' << with_master);
                        Workbench bench;
                        const Shape shape = {3, 11};
                        const OwnedTensor p = random_normal(param_type, shape, 1);
                        // The master copy holds digits that the parameter has lost.
                        const OwnedTensor master = random_normal(DType::f32, shape, 1);
                        const OwnedTensor g = random_normal(gradient_type, shape, 2);
                        const OwnedTensor m = random_normal(m_type, shape, 3, 0.1);
                        const OwnedTensor v = random_normal(v_type, shape, 4, 0.001, 0.02);
                        const AdamWLeaf leaf{.param = bench.put(p),
                                             .gradient = bench.put(g),
                                             .exp_avg = bench.put(m),
                                             .exp_avg_sq = bench.put(v),
                                             .master = with_master ? bench.put(master) : Tensor(),
                                             .weight_decay = static_cast<float>(decay)};
                        const AdamWLeaf leaves[] = {leaf};
                        const Tensor scalars =
                            bench.put({static_cast<float>(learning_rate), 0.f,
                                       static_cast<float>(correction1), static_cast<float>(correction2), 0.f,
                                       static_cast<float>(factor), 1.f, 1.f, 0.f});
                        bench.run(AdamW{.leaves = leaves, .scalars = scalars});

                        std::vector<double> ep = values(with_master ? master : p), em = values(m),
                                            ev = values(v);
                        const std::vector<double> eg = values(g);
                        for (std::size_t i = 0; i < ep.size(); ++i) {
                            const double clipped = eg[i] * factor;
                            em[i] = 0.9 * em[i] + 0.1 * clipped;
                            ev[i] = 0.999 * ev[i] + 0.001 * clipped * clipped;
                            ep[i] = ep[i] * (1 - learning_rate * decay) -
                                    learning_rate / correction1 * em[i] /
                                        (std::sqrt(ev[i]) / std::sqrt(correction2) + 1e-8);
                        }
                        const auto tolerance = [](DType dtype) {
                            return dtype == DType::f32 ? 5e-7 : 1.0 / 256;
                        };
                        EXPECT_LE(relative_error(bench.values_of(leaf.exp_avg), em), tolerance(m_type));
                        EXPECT_LE(relative_error(bench.values_of(leaf.exp_avg_sq), ev), tolerance(v_type));
                        EXPECT_LE(relative_error(bench.values_of(leaf.param), ep), tolerance(param_type));
                        if (!with_master) continue;
                        EXPECT_LE(relative_error(bench.values_of(leaf.master), ep), tolerance(DType::f32));
                        const OwnedTensor rounded =
                            OwnedTensor::converted(bench.get(leaf.master), param_type);
                        EXPECT_EQ(bench.values_of(leaf.param), values(rounded));
                    }
}

TEST(AdamW, TheOlderFormDecaysLastAndScalesItsEpsilon) {
    const double learning_rate = 0.01, correction1 = 0.19, correction2 = 0.002, decay = 30, eps = 1e-3;
    Workbench bench;
    const Shape shape = {3, 11};
    const OwnedTensor p = random_normal(DType::f32, shape, 1), g = random_normal(DType::f32, shape, 2),
                      m = random_normal(DType::f32, shape, 3, 0.1),
                      v = random_normal(DType::f32, shape, 4, 0.001, 0.02);
    const AdamWLeaf leaves[] = {{.param = bench.put(p),
                                 .gradient = bench.put(g),
                                 .exp_avg = bench.put(m),
                                 .exp_avg_sq = bench.put(v),
                                 .weight_decay = static_cast<float>(decay)}};
    const Tensor scalars = bench.put({static_cast<float>(learning_rate), 0.f, static_cast<float>(correction1),
                                      static_cast<float>(correction2), 0.f, 1.f, 1.f, 1.f, 0.f});
    bench.run(AdamW{.leaves = leaves,
                    .scalars = scalars,
                    .eps = static_cast<float>(eps),
                    .form = AdamWForm::transformers});
    std::vector<double> expected = values(p);
    const std::vector<double> gradient = values(g), first = values(m), second = values(v);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double mean = 0.9 * first[i] + 0.1 * gradient[i];
        const double square = 0.999 * second[i] + 0.001 * gradient[i] * gradient[i];
        expected[i] -=
            learning_rate * std::sqrt(correction2) / correction1 * mean / (std::sqrt(square) + eps);
        expected[i] -= learning_rate * decay * expected[i];
    }
    EXPECT_LE(relative_error(bench.values_of(leaves[0].param), expected), 5e-7);
}

}  // namespace
}  // namespace drover::test::optimizer_kernels_test
