#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

// Every backward against central differences of its forward, in fp32: for L = Σ dy·y, the derivative of L
// along a random direction d must be Σ d·dL/dx. L is summed in f64 from the fp32 outputs.

namespace drover::test::gradient_test {
namespace {

constexpr std::int64_t awkward_sizes[] = {1, 7, 17, 33, 1000};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

double norm(const std::vector<double>& a) {
    return std::sqrt(dot(a, a));
}

/// Checks `gradient` of loss(x) at the host tensor x. The difference is measured relative to the largest
/// possible derivative, ‖gradient‖·‖direction‖, because a random direction may be nearly orthogonal to it.
void expect_gradient(const Tensor& x, const std::vector<double>& gradient,
                     const std::function<double(const Tensor&)>& loss, const char* what) {
    const double step = 1e-2;
    const OwnedTensor direction = random_normal(DType::f32, x.shape(), 99);
    const auto moved = [&](double distance) {
        OwnedTensor there = OwnedTensor::copy_of(x);
        for (std::int64_t i = 0; i < x.numel(); ++i)
            there.tensor().data<float>()[i] +=
                static_cast<float>(distance * direction.tensor().data<float>()[i]);
        return there;
    };
    const OwnedTensor ahead = moved(step), behind = moved(-step);
    // What was actually added, after rounding to fp32.
    std::vector<double> way = values(ahead);
    const std::vector<double> from = values(behind);
    for (std::size_t i = 0; i < way.size(); ++i) way[i] -= from[i];
    const double difference = loss(ahead) - loss(behind);
    EXPECT_NEAR(difference, dot(gradient, way), 1e-3 * norm(gradient) * norm(way)) << what;
}

TEST(Gradient, RmsNorm) {
    for (const std::int64_t width : awkward_sizes) {
        SCOPED_TRACE(width);
        Workbench bench;
        const Shape shape = {3, width};
        const OwnedTensor residual = random_normal(DType::f32, shape, 1, 1, 2),
                          dy = random_normal(DType::f32, shape, 2);
        const OwnedTensor weight = random_normal(DType::f32, {width}, 3, 0.3, 1);
        const OwnedTensor through = random_normal(DType::f32, shape, 4);
        const Tensor y = bench.make(DType::f32, shape), rstd = bench.make(DType::f32, {3});
        // The residual stream passes on unchanged, so its own gradient adds to the loss.
        const auto loss = [&](const Tensor& r, const Tensor& w) {
            bench.run(RmsNorm{
                .residual_in = bench.put(r), .weight = bench.put(w), .y = y, .rstd = rstd, .eps = 1e-2f});
            return dot(bench.values_of(y), values(dy)) + dot(values(r), values(through));
        };
        loss(residual, weight);
        const Tensor dresidual = bench.make(DType::f32, shape), dweight = bench.make(DType::f32, {width});
        bench.run(RmsNormBackward{.dy = bench.put(dy),
                                  .residual_out = bench.put(residual),
                                  .weight = bench.put(weight),
                                  .rstd = rstd,
                                  .dresidual_out = bench.put(through),
                                  .dresidual = dresidual,
                                  .dweight = dweight});
        expect_gradient(
            residual, bench.values_of(dresidual), [&](const Tensor& r) { return loss(r, weight); },
            "residual");
        expect_gradient(
            weight, bench.values_of(dweight), [&](const Tensor& w) { return loss(residual, w); }, "weight");
    }
}

TEST(Gradient, HeadNorm) {
    for (const std::int64_t size : {2, 14, 34, 66, 256}) {
        SCOPED_TRACE(size);
        Workbench bench;
        const Shape shape = {3, 2, size};
        const OwnedTensor given = random_normal(DType::f32, shape, 1, 1, 2),
                          dy = random_normal(DType::f32, shape, 2);
        const OwnedTensor weight = random_normal(DType::f32, {size}, 3, 0.3, 1);
        const Tensor y = bench.make(DType::f32, shape), dx = bench.make(DType::f32, shape),
                     dweight = bench.make(DType::f32, {size});
        const float eps = 1e-2f;
        const auto loss = [&](const Tensor& x, const Tensor& w) {
            bench.run(HeadNorm{.x = bench.put(x), .weight = bench.put(w), .y = y, .eps = eps});
            return dot(bench.values_of(y), values(dy));
        };
        bench.run(HeadNormBackward{.dy = bench.put(dy),
                                   .x = bench.put(given),
                                   .weight = bench.put(weight),
                                   .dx = dx,
                                   .dweight = dweight,
                                   .eps = eps});
        expect_gradient(
            given, bench.values_of(dx), [&](const Tensor& x) { return loss(x, weight); }, "x");
        expect_gradient(
            weight, bench.values_of(dweight), [&](const Tensor& w) { return loss(given, w); }, "weight");
    }
}

TEST(Gradient, Swiglu) {
    for (const std::int64_t width : awkward_sizes) {
        SCOPED_TRACE(width);
        Workbench bench;
        const OwnedTensor gate_up = random_normal(DType::f32, {3, 2 * width}, 1, 2);
        const OwnedTensor dy = random_normal(DType::f32, {3, width}, 2);
        const Tensor y = bench.make(DType::f32, {3, width}),
                     dgate_up = bench.make(DType::f32, {3, 2 * width});
        bench.run(SwigluBackward{.gate_up = bench.put(gate_up), .dy = bench.put(dy), .dgate_up = dgate_up});
        expect_gradient(
            gate_up, bench.values_of(dgate_up),
            [&](const Tensor& x) {
                bench.run(Swiglu{.gate_up = bench.put(x), .y = y});
                return dot(bench.values_of(y), values(dy));
            },
            "gate_up");
    }
}

TEST(Gradient, Rope) {
    for (const std::int64_t pairs : awkward_sizes) {
        SCOPED_TRACE(pairs);
        Workbench bench;
        const Shape shape = {2, 3, 2 * pairs};
        const OwnedTensor angles = random_normal(DType::f32, {5, pairs}, 1, 3);
        OwnedTensor cosine = OwnedTensor::copy_of(angles), sine = OwnedTensor::copy_of(angles);
        for (std::int64_t i = 0; i < angles.tensor().numel(); ++i) {
            cosine.tensor().data<float>()[i] = std::cos(angles.tensor().data<float>()[i]);
            sine.tensor().data<float>()[i] = std::sin(angles.tensor().data<float>()[i]);
        }
        const OwnedTensor x = random_normal(DType::f32, shape, 2), dy = random_normal(DType::f32, shape, 3);
        const auto rotated = [&](const Tensor& host, bool inverse) {
            const Tensor device = bench.put(host);
            bench.run(Rope{.x = device,
                           .cosine = bench.put(cosine),
                           .sine = bench.put(sine),
                           .positions = bench.put({std::int32_t{4}, std::int32_t{1}}),
                           .inverse = inverse});
            return bench.get(device);
        };
        expect_gradient(
            x, values(rotated(dy, true)),
            [&](const Tensor& moved) { return dot(values(rotated(moved, false)), values(dy)); }, "x");
        // Rotating back restores x.
        EXPECT_LE(relative_error(rotated(rotated(x, false), true), x), 1e-6);
    }
}

TEST(Gradient, CrossEntropy) {
    for (const std::int64_t vocabulary : awkward_sizes) {
        SCOPED_TRACE(vocabulary);
        Workbench bench;
        const OwnedTensor logits = random_normal(DType::f32, {3, vocabulary}, 1, 2);
        const auto last = static_cast<std::int32_t>(vocabulary - 1);
        const Tensor targets = bench.put({std::int32_t{0}, ignored_target, last});
        const Tensor max = bench.make(DType::f32, {3}), sum_exp = bench.make(DType::f32, {3});
        const Tensor target_logit = bench.make(DType::f32, {3}), argmax = bench.make(DType::i32, {3});
        const Tensor losses = bench.make(DType::f32, {3});
        const auto run = [&](const Tensor& host, const Tensor& scale) {
            const Tensor device = bench.put(host);
            bench.run(CrossEntropyStatistics{.logits = device,
                                             .targets = targets,
                                             .max = max,
                                             .sum_exp = sum_exp,
                                             .target_logit = target_logit,
                                             .argmax = argmax});
            bench.run(CrossEntropyGradient{.logits = device,
                                           .targets = targets,
                                           .max = max,
                                           .sum_exp = sum_exp,
                                           .target_logit = target_logit,
                                           .loss = losses,
                                           .scale = scale});
            return device;
        };
        const std::vector<double> gradient = bench.values_of(run(logits, bench.put({0.25f})));
        expect_gradient(
            logits, gradient,
            [&](const Tensor& moved) {
                run(moved, Tensor());
                double sum = 0;
                for (double loss : bench.values_of(losses)) sum += loss;
                return 0.25 * sum;
            },
            "logits");
    }
}

TEST(Gradient, Embedding) {
    for (const std::int64_t width : awkward_sizes) {
        SCOPED_TRACE(width);
        Workbench bench;
        const OwnedTensor weight = random_normal(DType::f32, {5, width}, 1),
                          dy = random_normal(DType::f32, {40, width}, 2);
        const Tensor ids = bench.put(random_integers({40}, 3, 0, 5)), y = bench.make(DType::f32, {40, width});
        const Tensor dweight = bench.make(DType::f32, {5, width});
        bench.run(EmbeddingBackward{.ids = ids, .dy = bench.put(dy), .dweight = dweight});
        expect_gradient(
            weight, bench.values_of(dweight),
            [&](const Tensor& moved) {
                bench.run(Embedding{.ids = ids, .weight = bench.put(moved), .y = y});
                return dot(bench.values_of(y), values(dy));
            },
            "weight");
    }
}

}  // namespace
}  // namespace drover::test::gradient_test
