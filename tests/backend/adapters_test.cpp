#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"
#include "core/counter_rng.h"

namespace drover::test::adapters_test {
namespace {

constexpr std::int64_t tokens = 37, columns = 51;

double tolerance(DType dtype) {
    return dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 6e-3 : 8e-4;
}

Tensor step_scalars(Workbench& bench, float step) {
    std::vector<float> scalars(StepScalar::count, 0.0f);
    scalars[StepScalar::step] = step;
    return bench.put(Tensor::of(scalars.data(), {StepScalar::count}));
}

TEST(DropElements, KeepsWhatTheGeneratorSaysWhateverTheLayout) {
    constexpr double rate = 0.3;
    constexpr std::uint64_t seed = 5, leaf = 77;
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const OwnedTensor x = random_normal(dtype, {tokens, columns}, 1);
        const Tensor on_device = bench.put(x), y = bench.make(dtype, {tokens, columns});
        DropElements op{.x = on_device,
                        .y = y,
                        .scalars = step_scalars(bench, 9),
                        .first_row = 4,
                        .columns = columns,
                        .rate = rate,
                        .seed = seed,
                        .leaf = leaf};
        bench.run(op);
        const std::vector<double> before = values(x), after = bench.values_of(y);
        const CounterRng random(seed, 9);
        std::size_t dropped = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
            const bool kept = static_cast<double>(random.uniform(leaf, i + 4 * columns)) >= rate;
            dropped += !kept;
            EXPECT_NEAR(after[i], kept ? before[i] / (1 - rate) : 0.0,
                        tolerance(dtype) * std::fabs(before[i] / (1 - rate)));
        }
        EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(before.size()), rate, 0.04);

        // Some rows and columns alone, in place and strided, and rows in another order.
        const Tensor again = bench.put(x);
        const Tensor part = again.rows(10, 20).columns(7, 30);
        op.x = op.y = part;
        op.first_row = 14;
        op.first_column = 7;
        bench.run(op);
        const std::vector<double> partly = bench.values_of(again);
        for (std::size_t row = 0; row < tokens; ++row)
            for (std::size_t column = 0; column < columns; ++column) {
                const bool inside = row >= 10 && row < 30 && column >= 7 && column < 37;
                const std::size_t at = row * columns + column;
                EXPECT_EQ(partly[at], inside ? after[at] : before[at]);
            }

        const std::int32_t order[] = {30, 2, 17};
        const Tensor three = bench.make(dtype, {3, columns}), numbers = bench.put(Tensor::of(order, {3}));
        OwnedTensor picked(dtype, {3, columns});
        const std::size_t row_bytes = picked.tensor().bytes() / 3;
        for (std::size_t i = 0; i < 3; ++i)
            std::memcpy(
                static_cast<std::byte*>(picked.tensor().raw()) + i * row_bytes,
                static_cast<std::byte*>(x.tensor().raw()) + static_cast<std::size_t>(order[i]) * row_bytes,
                row_bytes);
        op.x = bench.put(picked);
        op.y = three;
        op.number_of_row = numbers;
        op.first_row = 4;
        op.first_column = 0;
        bench.run(op);
        const std::vector<double> ordered = bench.values_of(three);
        for (std::size_t i = 0; i < 3; ++i)
            for (std::size_t column = 0; column < columns; ++column)
                EXPECT_EQ(ordered[i * columns + column],
                          after[static_cast<std::size_t>(order[i]) * columns + column]);
    }
}

TEST(AdaptedSquares, AreThoseOfTheWholeMatrix) {
    constexpr std::int64_t out = 23, in = 45, rank = 5;
    constexpr double scale = 1.5;
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const OwnedTensor w = random_normal(dtype, {out, in}, 1), a = random_normal(dtype, {rank, in}, 2),
                          b = random_normal(dtype, {out, rank}, 3);
        const Tensor weight = bench.put(w), low = bench.put(a), high = bench.put(b);
        const Tensor products = bench.make(DType::f32, {out, rank}),
                     gram = bench.make(DType::f32, {rank, rank}), squares = bench.make(DType::f32, {out});
        bench.run(Gemm::forward(weight, low, products));
        bench.run(Gemm::forward(low, low, gram));
        bench.run(AdaptedSquares{.weight = weight,
                                 .b = high,
                                 .products = products,
                                 .gram = gram,
                                 .squares = squares,
                                 .scale = scale});
        const std::vector<double> wv = values(w), av = values(a), bv = values(b),
                                  found = bench.values_of(squares);
        for (std::size_t o = 0; o < out; ++o) {
            double sum = 0;
            for (std::size_t i = 0; i < in; ++i) {
                double element = wv[o * in + i];
                for (std::size_t r = 0; r < rank; ++r) element += scale * bv[o * rank + r] * av[r * in + i];
                sum += element * element;
            }
            EXPECT_NEAR(found[o], sum, 1e-5 * sum);
        }
    }
}

TEST(ScaleColumns, AndMagnitudesAndTheirGradient) {
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const OwnedTensor u = random_normal(dtype, {tokens, 2 * columns}, 1),
                          dy = random_normal(dtype, {tokens, columns}, 2),
                          bias = random_normal(dtype, {columns}, 3),
                          lengths = random_normal(dtype, {columns}, 4);
        std::vector<float> square_values;
        for (std::int64_t i = 0; i < columns; ++i)
            square_values.push_back(0.5f + 0.1f * static_cast<float>(i));
        const Tensor squares = bench.put(Tensor::of(square_values.data(), {columns})),
                     magnitudes = bench.put(lengths), factors = bench.make(DType::f32, {columns});
        bench.run(MagnitudeFactors{.magnitudes = magnitudes, .squares = squares, .factors = factors});
        const Tensor both = bench.put(u), y = both.columns(columns, columns), added = bench.put(bias);
        bench.run(ScaleColumns{.x = y, .y = y, .factors = factors, .bias = added});
        const Tensor dmagnitudes = bench.make(DType::f32, {columns});
        MagnitudeGradient gradient{
            .dy = bench.put(dy), .y = y, .bias = added, .magnitudes = magnitudes, .dmagnitudes = dmagnitudes};
        bench.run(gradient);

        const std::vector<double> before = values(u), after = bench.values_of(both), dyv = values(dy),
                                  bv = values(bias), mv = values(lengths),
                                  found = bench.values_of(dmagnitudes);
        for (std::size_t column = 0; column < columns; ++column) {
            const double length = std::sqrt(static_cast<double>(square_values[column]));
            double sum = 0, size = 0;
            for (std::size_t row = 0; row < tokens; ++row) {
                const std::size_t at = row * 2 * columns + column;
                EXPECT_EQ(after[at], before[at]);  // the other half
                const double exact = before[at + columns] * mv[column] / length + bv[column];
                EXPECT_NEAR(after[at + columns], exact, tolerance(dtype) * (std::fabs(exact) + 0.1));
                const double term = dyv[row * columns + column] * before[at + columns] / length;
                sum += term;
                size +=
                    std::fabs(dyv[row * columns + column]) * (std::fabs(exact) + 1) / std::fabs(mv[column]);
            }
            EXPECT_NEAR(found[column], sum, tolerance(dtype) * size);
        }
        gradient.accumulate = true;
        bench.run(gradient);
        const std::vector<double> twice = bench.values_of(dmagnitudes);
        for (std::size_t column = 0; column < columns; ++column)
            EXPECT_NEAR(twice[column], 2 * found[column], 1e-6 * std::fabs(twice[column]));
    }
}

TEST(Scale, MultipliesSomeColumns) {
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const OwnedTensor x = random_normal(dtype, {tokens, columns}, 1);
        const Tensor on_device = bench.put(x);
        bench.run(Scale{.x = on_device.columns(3, 16), .factor = 0.5f});
        const std::vector<double> before = values(x), after = bench.values_of(on_device);
        for (std::size_t i = 0; i < before.size(); ++i) {
            const std::size_t column = i % columns;
            EXPECT_EQ(after[i], column >= 3 && column < 19 ? before[i] / 2 : before[i]);
        }
    }
}

TEST(Transpose, TurnsRowsIntoColumns) {
    for (const DType dtype : activation_types())
        for (const auto& [rows, width] : {std::pair(37, 51), std::pair(4, 1003), std::pair(64, 32)}) {
            Workbench bench;
            const OwnedTensor x = random_normal(dtype, {rows, width + 5}, 1),
                              before = random_normal(DType::f32, {width, rows}, 2);
            const Tensor part = bench.put(x).columns(5, width), y = bench.make(dtype, {width, rows}),
                         sum = bench.put(before);
            bench.run(Transpose{.x = part, .y = y});
            bench.run(Transpose{.x = part, .y = sum, .accumulate = true});
            const std::vector<double> from = values(x.tensor().columns(5, width)), to = bench.values_of(y),
                                      added = bench.values_of(sum), start = values(before);
            for (int row = 0; row < rows; ++row)
                for (int column = 0; column < width; ++column) {
                    const auto there = static_cast<std::size_t>(column * rows + row);
                    const double element = from[static_cast<std::size_t>(row * width + column)];
                    ASSERT_EQ(to[there], element);
                    ASSERT_NEAR(added[there], start[there] + element, 1e-6);
                }
        }
}

/// A frozen norm has no gradient; that of its input is the same.
TEST(FrozenNorms, NeedNoGradientOfTheirWeight) {
    for (const DType dtype : activation_types()) {
        Workbench bench;
        const Tensor dy = bench.put(random_normal(dtype, {tokens, 64}, 1)),
                     x = bench.put(random_normal(dtype, {tokens, 64}, 2)),
                     weight = bench.put(random_normal(dtype, {64}, 3)),
                     rstd = bench.put(random_normal(DType::f32, {tokens}, 4));
        const Tensor with = bench.make(dtype, {tokens, 64}), without = bench.make(dtype, {tokens, 64});
        RmsNormBackward op{.dy = dy,
                           .residual_out = x,
                           .weight = weight,
                           .rstd = rstd,
                           .dresidual = with,
                           .dweight = bench.make(dtype, {64})};
        bench.run(op);
        op.dresidual = without;
        op.dweight = {};
        bench.run(op);
        EXPECT_EQ(bench.values_of(with), bench.values_of(without));

        HeadNormBackward head{.dy = dy.split_columns(4, 16),
                              .x = x.split_columns(4, 16),
                              .weight = weight.rows(0, 16),
                              .dx = with.split_columns(4, 16),
                              .dweight = bench.make(dtype, {16}),
                              .eps = 1e-5f};
        bench.run(head);
        head.dx = without.split_columns(4, 16);
        head.dweight = {};
        bench.run(head);
        EXPECT_EQ(bench.values_of(with), bench.values_of(without));
    }
}

}  // namespace
}  // namespace drover::test::adapters_test
