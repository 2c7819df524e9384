#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend_under_test.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"

namespace drover::test::rms_norm_test {
namespace {

constexpr float eps = 1e-5f;

struct Reference {
    std::vector<double> y, dresidual, dweight;
};

/// In f64, with the same intermediate rounding as in Hugging Face.
Reference reference(const Tensor& residual, const Tensor& weight, const Tensor& dy) {
    const std::int64_t rows = residual.size(0), width = residual.size(1);
    const std::vector<double> x = values(residual), w = values(weight), d = values(dy);
    Reference result{
        .y = {}, .dresidual = {}, .dweight = std::vector<double>(static_cast<std::size_t>(width))};
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto at = [&](std::int64_t column) { return static_cast<std::size_t>(row * width + column); };
        double squares = 0, mean = 0;
        for (std::int64_t i = 0; i < width; ++i) squares += x[at(i)] * x[at(i)];
        const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
        for (std::int64_t i = 0; i < width; ++i)
            mean += d[at(i)] * w[static_cast<std::size_t>(i)] * x[at(i)] * rstd / static_cast<double>(width);
        for (std::int64_t i = 0; i < width; ++i) {
            const auto column = static_cast<std::size_t>(i);
            auto normalised = static_cast<float>(x[at(i)] * rstd);
            if (residual.dtype() == DType::bf16) normalised = static_cast<float>(bf16(normalised));
            if (residual.dtype() == DType::f16) normalised = static_cast<float>(f16(normalised));
            result.y.push_back(normalised * w[column]);
            result.dresidual.push_back(rstd * (d[at(i)] * w[column] - x[at(i)] * rstd * mean));
            result.dweight[column] += d[at(i)] * x[at(i)] * rstd;
        }
    }
    return result;
}

struct Types {
    DType y, residual, weight, dweight;
};

/// fp32, a pure 16-bit type, autocast (everything but the matrix products in fp32), and mixtures of these.
std::vector<Types> all_types() {
    std::vector<Types> all = {{DType::f32, DType::f32, DType::f32, DType::f32},
                              {DType::f32, DType::f32, DType::f32, DType::bf16}};
    for (DType half : activation_types()) {
        if (half == DType::f32) continue;
        all.push_back({half, half, half, half});
        all.push_back({half, DType::f32, DType::f32, DType::f32});
        all.push_back({half, DType::f32, half, DType::f32});
        all.push_back({half, half, DType::f32, DType::f32});
    }
    return all;
}

/// Allowed relative error of a result that is rounded once to `dtype`.
double tolerance(DType dtype) {
    return dtype == DType::f32 ? 1e-6 : 1.0 / 256;
}

/// Checks both directions without x against the reference.
void expect_right(const Types& types, const Shape& shape) {
    const std::int64_t rows = shape[0], width = shape[1];
    SCOPED_TRACE(testing::Message() << name_of(types.y) << ' ' << name_of(types.residual) << ' ' << rows
                                    << ' ' << width);
    Workbench bench;
    const OwnedTensor residual = random_normal(types.residual, shape, 1, 2);
    const OwnedTensor weight = random_normal(types.weight, {width}, 2, 0.3, 1);
    const OwnedTensor dy = random_normal(types.y, shape, 3);
    const Tensor y = bench.make(types.y, shape), again = bench.make(types.y, shape);
    const Tensor rstd = bench.make(DType::f32, {rows});
    bench.run(RmsNorm{
        .residual_in = bench.put(residual), .weight = bench.put(weight), .y = y, .rstd = rstd, .eps = eps});
    const Tensor dresidual = bench.make(types.residual, shape), dweight = bench.make(types.dweight, {width});
    RmsNormBackward backward{.dy = bench.put(dy),
                             .residual_out = bench.put(residual),
                             .weight = bench.put(weight),
                             .rstd = rstd,
                             .dresidual = dresidual,
                             .dweight = dweight,
                             .y = again};
    bench.run(backward);
    EXPECT_TRUE(same_bits(bench.get(again), bench.get(y)));
    const Reference expected = reference(residual, weight, dy);
    // Rounded once more, the reference must give the same bits except for single elements: this distinguishes
    // the residual's dtype from y's in the inner rounding.
    OwnedTensor rounded(DType::f32, shape);
    for (std::size_t i = 0; i < expected.y.size(); ++i)
        rounded.tensor().data<float>()[i] = static_cast<float>(expected.y[i]);
    EXPECT_LE(relative_error(bench.get(y), OwnedTensor::converted(rounded, types.y)),
              types.y == DType::f32 ? 5e-7 : tolerance(types.y) / 16);
    EXPECT_LE(relative_error(bench.values_of(dweight), expected.dweight), tolerance(types.dweight));
    // With one element per row the terms of the gradient cancel, leaving only their rounding.
    if (width == 1) return;
    EXPECT_LE(relative_error(bench.values_of(dresidual), expected.dresidual), tolerance(types.residual));

    // Without y nothing else changes.
    const OwnedTensor before = bench.get(dresidual);
    backward.y = Tensor();
    bench.run(backward);
    EXPECT_TRUE(same_bits(bench.get(dresidual), before));
}

TEST(RmsNorm, MixedTypesMatchTheReference) {
    for (const Types& types : all_types())
        for (const std::int64_t width : {1, 7, 17, 33, 256, 1000})
            expect_right(types, {70, width});  // more rows than are summed at once
}

/// Enough rows that each GPU block processes several in turn, and rows wide enough that many threads share
/// one.
TEST(RmsNorm, ManyAndWideRowsMatchTheReference) {
    if (!tests_use_cuda())
        GTEST_SKIP() << "sizes at which a GPU's kernels change their ways; DROVER_TEST_DEVICE=cuda runs this";
    const DType half = activation_types().back();
    const Types pure{half, half, half, half}, autocast{half, DType::f32, DType::f32, DType::f32};
    expect_right(pure, {4300, 768});
    expect_right(pure, {1, 768});
    expect_right(pure, {16, 2048});
    expect_right(pure, {1061, 2048});
    expect_right({half, half, DType::f32, DType::f32}, {2113, 768});
    expect_right(autocast, {2150, 768});
    expect_right(pure, {1200, 1544});
    expect_right(pure, {540, 4096});
    expect_right(autocast, {270, 4096});
    expect_right(pure, {134, 16384});
    expect_right(autocast, {133, 16384});
    expect_right(pure, {3, 16400});
}

/// The incoming gradient of the residual is added to the norm's own, wherever its rows are, and nothing else
/// changes.
TEST(RmsNorm, BackwardAddsTheIncomingGradientAtEveryWidth) {
    const std::vector<std::int64_t> widths = tests_use_cuda()
                                                 ? std::vector<std::int64_t>{33, 256, 768, 776, 2048, 4096}
                                                 : std::vector<std::int64_t>{33, 256, 768};
    for (const std::int64_t width : widths)
        // Several rows in turn, the last of them not for all blocks.
        for (const std::int64_t rows : {1, !tests_use_cuda() ? 70 : width < 2048 ? 2500 : 600}) {
            const Shape shape = {rows, width};
            // Generating random numbers takes longer than all the rest, so all types share them.
            const auto normal = [](const Shape& of, unsigned seed, double deviation = 1, double mean = 0) {
                return random_normal(DType::f32, of, seed, deviation, mean);
            };
            const OwnedTensor incoming_numbers = normal(shape, 4),
                              spread_numbers = normal({rows, width + 16}, 5), dy_numbers = normal(shape, 1),
                              residual_numbers = normal(shape, 2, 2);
            for (const Types& types : all_types()) {
                SCOPED_TRACE(testing::Message() << name_of(types.y) << ' ' << name_of(types.residual) << ' '
                                                << rows << ' ' << width);
                Workbench bench;
                const auto put = [&](const OwnedTensor& numbers, DType dtype) {
                    return bench.put(OwnedTensor::converted(numbers, dtype));
                };
                const Tensor incoming = put(incoming_numbers, types.residual);
                // Rows with a stride greater than their width.
                const Tensor spread = put(spread_numbers, types.residual);
                const Tensor alone = bench.make(types.residual, shape),
                             apart = bench.make(types.residual, shape);
                const Tensor first = bench.make(types.dweight, {width}),
                             second = bench.make(types.dweight, {width});
                RmsNormBackward backward{.dy = put(dy_numbers, types.y),
                                         .residual_out = put(residual_numbers, types.residual),
                                         .weight = bench.put(random_normal(types.weight, {width}, 3, 0.3, 1)),
                                         .rstd = bench.put(random_normal(DType::f32, {rows}, 6, 0.1, 0.5)),
                                         .dresidual = alone,
                                         .dweight = first};
                bench.run(backward);
                const auto expect_sum = [&](const Tensor& added) {
                    std::vector<double> sum = bench.values_of(alone);
                    const std::vector<double> other = values(bench.get(added));
                    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
                    backward.dresidual_out = added;
                    backward.dresidual = apart;
                    backward.dweight = second;
                    bench.run(backward);
                    EXPECT_LE(relative_error(bench.values_of(apart), sum), 2 * tolerance(types.residual));
                    EXPECT_TRUE(same_bits(bench.get(second), bench.get(first)));
                };
                expect_sum(incoming);
                const OwnedTensor before = bench.get(apart);
                backward.dresidual = incoming;
                bench.run(backward);
                EXPECT_TRUE(same_bits(bench.get(incoming), before));
                EXPECT_TRUE(same_bits(bench.get(second), bench.get(first)));

                const Tensor packed = bench.make(types.residual, shape);
                bench.run(Cast{.from = spread.columns(8, width), .to = packed});
                expect_sum(packed);
                const OwnedTensor of_packed = bench.get(apart);
                backward.dresidual_out = backward.dresidual = spread.columns(8, width);
                bench.run(backward);
                EXPECT_EQ(values(bench.get(spread).tensor().columns(8, width)), values(of_packed));
            }
        }
}

TEST(RmsNorm, AddsXToTheResidualInPlace) {
    for (const Types& types : all_types()) {
        Workbench bench;
        const Shape shape = {3, 33};
        const Tensor x = bench.put(random_normal(types.y, shape, 1));
        const Tensor residual = bench.put(random_normal(types.residual, shape, 2));
        const Tensor aliased = bench.put(bench.get(residual)), apart = bench.make(types.residual, shape);
        const Tensor weight = bench.put(random_normal(types.weight, {33}, 3));
        const Tensor y = bench.make(types.y, shape), y_apart = bench.make(types.y, shape);
        const Tensor rstd = bench.make(DType::f32, {3});
        bench.run(RmsNorm{.x = x,
                          .residual_in = residual,
                          .residual_out = apart,
                          .weight = weight,
                          .y = y_apart,
                          .rstd = rstd,
                          .eps = eps});
        bench.run(RmsNorm{.x = x,
                          .residual_in = aliased,
                          .residual_out = aliased,
                          .weight = weight,
                          .y = y,
                          .rstd = rstd,
                          .eps = eps});
        EXPECT_EQ(bench.values_of(aliased), bench.values_of(apart));
        EXPECT_EQ(bench.values_of(y), bench.values_of(y_apart));

        std::vector<double> sum = bench.values_of(residual);
        const std::vector<double> added = bench.values_of(x);
        for (std::size_t i = 0; i < sum.size(); ++i) {
            const auto exact = static_cast<float>(sum[i]) + static_cast<float>(added[i]);
            sum[i] = types.residual == DType::f32   ? exact
                     : types.residual == DType::f16 ? static_cast<float>(f16(exact))
                                                    : static_cast<float>(bf16(exact));
        }
        EXPECT_EQ(bench.values_of(apart), sum);
    }
}

TEST(RmsNorm, BackwardAccumulatesAndMayOverwriteTheIncomingGradient) {
    Workbench bench;
    const Shape shape = {5, 17};
    const Tensor residual = bench.put(random_normal(DType::f32, shape, 1));
    const Tensor weight = bench.put(random_normal(DType::f32, {17}, 2));
    const Tensor rstd = bench.put({1.f, 0.5f, 2.f, 0.25f, 1.5f});
    const Tensor incoming = bench.put(random_normal(DType::f32, shape, 3)),
                 apart = bench.make(DType::f32, shape);
    const Tensor once = bench.make(DType::f32, {17}), twice = bench.make(DType::f32, {17});
    RmsNormBackward backward{.dy = bench.put(random_normal(DType::f32, shape, 4)),
                             .residual_out = residual,
                             .weight = weight,
                             .rstd = rstd,
                             .dresidual_out = incoming,
                             .dresidual = apart,
                             .dweight = once};
    bench.run(backward);
    backward.dweight = twice;
    bench.run(backward);
    backward.accumulate = true;
    backward.dresidual = incoming;
    bench.run(backward);
    EXPECT_EQ(bench.values_of(incoming), bench.values_of(apart));
    std::vector<double> doubled = bench.values_of(once);
    for (double& value : doubled) value *= 2;
    EXPECT_EQ(bench.values_of(twice), doubled);
}

TEST(RmsNorm, StridedOperands) {
    Workbench bench;
    // All operands are column ranges of wider matrices.
    const Shape wide = {4, 50};
    const OwnedTensor x = random_normal(DType::f32, wide, 1), r = random_normal(DType::f32, wide, 2);
    const Tensor weight = bench.put(random_normal(DType::f32, {19}, 3)), rstd = bench.make(DType::f32, {4});
    const Tensor residual_out = bench.make(DType::f32, wide), y = bench.make(DType::f32, wide);
    bench.run(RmsNorm{.x = bench.put(x).columns(3, 19),
                      .residual_in = bench.put(r).columns(7, 19),
                      .residual_out = residual_out.columns(11, 19),
                      .weight = weight,
                      .y = y.columns(31, 19),
                      .rstd = rstd,
                      .eps = eps});
    const auto packed = [](const Tensor& part) {
        OwnedTensor copy(DType::f32, part.shape());
        const std::vector<double> elements = values(part);
        for (std::size_t i = 0; i < elements.size(); ++i)
            copy.tensor().data<float>()[i] = static_cast<float>(elements[i]);
        return copy;
    };
    const Tensor expected_residual = bench.make(DType::f32, {4, 19}),
                 expected = bench.make(DType::f32, {4, 19});
    bench.run(RmsNorm{.x = bench.put(packed(x.tensor().columns(3, 19))),
                      .residual_in = bench.put(packed(r.tensor().columns(7, 19))),
                      .residual_out = expected_residual,
                      .weight = weight,
                      .y = expected,
                      .rstd = rstd,
                      .eps = eps});
    const OwnedTensor all_residual = bench.get(residual_out), all_y = bench.get(y);
    EXPECT_EQ(values(all_residual.tensor().columns(11, 19)), bench.values_of(expected_residual));
    EXPECT_EQ(values(all_y.tensor().columns(31, 19)), bench.values_of(expected));
    for (double untouched : values(all_y.tensor().columns(0, 31))) EXPECT_TRUE(std::isnan(untouched));
}

}  // namespace
}  // namespace drover::test::rms_norm_test
