#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <string>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::grouped_gemm_test {
namespace {

using Use = GroupedGemm::Use;

/// Settings for each method that a backend has for grouped products, starting with its own choice.
std::vector<BackendSettings> methods() {
    if (!tests_use_cuda()) return {backend_settings_from_environment()};
    return {{},
            {.grouped_gemm = GroupedGemmMethod::cublas},
            {.grouped_gemm = GroupedGemmMethod::streams},
            {.grouped_gemm = GroupedGemmMethod::kernel}};
}

/// For traces.
int number_of(const BackendSettings& settings) {
    return settings.grouped_gemm ? static_cast<int>(*settings.grouped_gemm) : -1;
}

std::vector<DType> dtypes() {
    if (!tests_use_cuda()) return {DType::f32, DType::bf16};
    return {DType::f32, DType::bf16, DType::f16};
}

double tolerance_of(DType dtype) {
    return dtype == DType::f32 ? 1e-6 : dtype == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& counts) {
    std::vector<std::int32_t> offsets = {0};
    for (const std::int32_t count : counts) offsets.push_back(offsets.back() + count);
    return offsets;
}

/// Operands of the three products of a layer of experts, and the results in f64.
struct Layer {
    std::vector<std::int32_t> offsets;
    std::int64_t in, out;
    OwnedTensor x, dy, weights, before;

    Layer(DType dtype, const std::vector<std::int32_t>& counts, std::int64_t in_columns,
          std::int64_t out_columns)
        : offsets(offsets_of(counts)),
          in(in_columns),
          out(out_columns),
          x(random_normal(dtype, {rows(), in}, 1)),
          dy(random_normal(dtype, {rows(), out}, 2)),
          weights(random_normal(dtype, {experts() * out, in}, 3)),
          before(random_normal(dtype, {experts() * out, in}, 4)) {}

    std::int64_t experts() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
    std::int64_t rows() const { return offsets.back(); }

    struct Results {
        std::vector<double> y, dx, dweights;
    };
    Results results() const { return results(offsets); }
    Results results(const std::vector<std::int32_t>& groups) const {
        const std::vector<double> vx = values(x), vdy = values(dy), vw = values(weights);
        Results made{std::vector<double>(vdy.size(), 0), std::vector<double>(vx.size(), 0),
                     std::vector<double>(vw.size(), 0)};
        for (std::int64_t e = 0; e < experts(); ++e)
            for (std::int64_t r = groups[static_cast<std::size_t>(e)];
                 r < groups[static_cast<std::size_t>(e) + 1]; ++r)
                for (std::int64_t o = 0; o < out; ++o) {
                    const double dy_here = vdy[r * out + o];
                    const double* w = &vw[(e * out + o) * in];
                    double* dw = &made.dweights[(e * out + o) * in];
                    double sum = 0;
                    for (std::int64_t i = 0; i < in; ++i) {
                        sum += vx[r * in + i] * w[i];
                        made.dx[r * in + i] += dy_here * w[i];
                        dw[i] += dy_here * vx[r * in + i];
                    }
                    made.y[r * out + o] = sum;
                }
        return made;
    }
};

/// Runs the products and compares them with `expected`.
void expect_products(Workbench& bench, const Layer& layer, const Tensor& offsets,
                     const Layer::Results& expected) {
    const DType dtype = layer.x.tensor().dtype();
    const Tensor x = bench.put(layer.x), dy = bench.put(layer.dy), weights = bench.put(layer.weights);
    const auto run = [&](Use use, const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate) {
        bench.run(
            GroupedGemm{.use = use, .a = a, .b = b, .c = c, .offsets = offsets, .accumulate = accumulate});
        return bench.values_of(c);
    };
    const double tolerance = tolerance_of(dtype);
    const Tensor y = bench.make(dtype, {layer.rows(), layer.out}),
                 dx = bench.make(dtype, {layer.rows(), layer.in});
    EXPECT_LE(relative_error(run(Use::forward, x, weights, y, false), expected.y), tolerance);
    EXPECT_LE(relative_error(run(Use::data_gradient, dy, weights, dx, false), expected.dx), tolerance);
    const auto twice = [](std::vector<double> values) {
        for (double& value : values) value *= 2;
        return values;
    };
    EXPECT_LE(relative_error(run(Use::forward, x, weights, y, true), twice(expected.y)), tolerance);
    EXPECT_LE(relative_error(run(Use::data_gradient, dy, weights, dx, true), twice(expected.dx)), tolerance);
    for (const DType result : {dtype, DType::f32}) {
        const Tensor fresh = bench.make(result, layer.weights.tensor().shape());
        EXPECT_LE(relative_error(run(Use::weight_gradient, dy, x, fresh, false), expected.dweights),
                  tolerance_of(result))
            << name_of(result);
        std::vector<double> sum = values(layer.before);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += expected.dweights[i];
        const Tensor added = bench.put(layer.before, result);
        EXPECT_LE(relative_error(run(Use::weight_gradient, dy, x, added, true), sum), tolerance_of(result))
            << name_of(result);
    }
}

struct Groups {
    const char* name;
    std::vector<std::int32_t> counts;

    friend void PrintTo(const Groups& groups, std::ostream* out) { *out << groups.name; }
};

/// About 14 rows each, some with none.
std::vector<std::int32_t> uneven_counts(int experts) {
    std::vector<std::int32_t> counts;
    for (int e = 0; e < experts; ++e) counts.push_back(e % 5 == 3 ? 0 : 1 + e * 7 % 29);
    return counts;
}

/// All layers with every method, using one backend per method: creating one takes longer than a product.
void expect_with_every_method(const std::vector<Layer>& layers) {
    std::vector<Layer::Results> expected;
    for (const Layer& layer : layers) expected.push_back(layer.results());
    for (const BackendSettings& method : methods()) {
        Workbench bench(method);
        for (std::size_t i = 0; i < layers.size(); ++i) {
            const Layer& layer = layers[i];
            SCOPED_TRACE(testing::Message() << layer.in << " × " << layer.out << ' '
                                            << name_of(layer.x.tensor().dtype()) << ' ' << number_of(method));
            const Tensor offsets = bench.put(Tensor::of(layer.offsets.data(), {layer.experts() + 1}));
            expect_products(bench, layer, offsets, expected[i]);
        }
    }
}

class GroupedProducts : public testing::TestWithParam<Groups> {};

TEST_P(GroupedProducts, MatchTheReference) {
    std::vector<Layer> layers;
    for (const DType dtype : dtypes()) {
        const auto add = [&](std::int64_t in, std::int64_t out) {
            layers.emplace_back(dtype, GetParam().counts, in, out);
        };
        // Multiples of what a kernel processes at a time, other multiples of 8, and other sizes.
        add(64, 256);
        add(72, 264);
        add(136, 40);
        add(29, 31);
    }
    expect_with_every_method(layers);
}

INSTANTIATE_TEST_SUITE_P(Backend, GroupedProducts,
                         testing::Values(Groups{"one_expert", {77}}, Groups{"first_has_none", {0, 130}},
                                         Groups{"one_takes_all", {0, 0, 0, 201, 0, 0, 0, 0}},
                                         Groups{"around_the_tiles", {1, 127, 128, 129, 63, 64, 65, 0}},
                                         Groups{"one_row_each", {1, 1, 1, 1, 1, 1, 1, 1}},
                                         Groups{"many_experts", uneven_counts(64)}),
                         [](const auto& groups) { return std::string(groups.param.name); });

/// More tiles in both directions than are processed together, and sums of many steps.
TEST(GroupedProduct, LargeMatrices) {
    std::vector<Layer> layers;
    for (const DType dtype : dtypes())
        if (dtype != DType::f32)
            layers.emplace_back(dtype, std::vector<std::int32_t>{300, 0, 517}, 328, 2312);
    expect_with_every_method(layers);
}

/// Rows that are parts of wider ones, like the halves of gate and up.
TEST(GroupedProduct, StridedRows) {
    const Layer layer(DType::bf16, {70, 0, 60}, 80, 96);
    const Layer::Results expected = layer.results();
    const auto widened = [](Workbench& bench, const Tensor& narrow) {
        const std::int64_t rows = narrow.size(0), columns = narrow.size(1);
        const OwnedTensor wide(DType::bf16, {rows, 2 * columns + 8});
        for (std::int64_t r = 0; r < rows; ++r)
            std::copy_n(static_cast<const std::uint16_t*>(narrow.raw()) + r * columns, columns,
                        static_cast<std::uint16_t*>(wide.tensor().raw()) + r * (2 * columns + 8) + 8);
        return bench.put(wide).columns(8, columns);
    };
    for (const BackendSettings& method : methods()) {
        SCOPED_TRACE(number_of(method));
        Workbench bench(method);
        const Tensor offsets = bench.put(Tensor::of(layer.offsets.data(), {layer.experts() + 1}));
        const Tensor x = widened(bench, layer.x), dy = widened(bench, layer.dy);
        const Tensor whole = bench.make(DType::bf16, {layer.rows(), layer.out + 16});
        const Tensor y = whole.columns(8, layer.out);
        bench.run(GroupedGemm{
            .use = Use::forward, .a = x, .b = bench.put(layer.weights), .c = y, .offsets = offsets});
        const Tensor gradient = bench.make(DType::bf16, layer.weights.tensor().shape());
        bench.run(
            GroupedGemm{.use = Use::weight_gradient, .a = dy, .b = x, .c = gradient, .offsets = offsets});
        const OwnedTensor got = bench.get(whole);
        EXPECT_LE(relative_error(values(got.tensor().columns(8, layer.out)), expected.y), 1.0 / 256);
        for (const double outside : values(got.tensor().columns(0, 8))) EXPECT_TRUE(std::isnan(outside));
        for (const double outside : values(got.tensor().columns(layer.out + 8, 8)))
            EXPECT_TRUE(std::isnan(outside));
        EXPECT_LE(relative_error(bench.values_of(gradient), expected.dweights), 1.0 / 256);
    }
}

/// Numbers that are not finite stay in the group that has them.
TEST(GroupedProduct, NeighboursDoNotMix) {
    const Layer layer(DType::bf16, {70, 50, 90}, 72, 88);
    const OwnedTensor x = OwnedTensor::copy_of(layer.x), dy = OwnedTensor::copy_of(layer.dy);
    for (const OwnedTensor* rows : {&x, &dy}) {
        const std::int64_t columns = rows->tensor().size(1);
        std::fill_n(static_cast<std::uint16_t*>(rows->tensor().raw()) + 70 * columns, 50 * columns,
                    std::uint16_t{0x7F80});  // infinity
    }
    const Layer::Results expected = layer.results();
    for (const BackendSettings& method : methods()) {
        SCOPED_TRACE(number_of(method));
        Workbench bench(method);
        const Tensor offsets = bench.put(Tensor::of(layer.offsets.data(), {layer.experts() + 1}));
        const Tensor y = bench.make(DType::bf16, {layer.rows(), layer.out});
        const Tensor gradient = bench.make(DType::f32, layer.weights.tensor().shape());
        bench.run(GroupedGemm{.use = Use::forward,
                              .a = bench.put(x),
                              .b = bench.put(layer.weights),
                              .c = y,
                              .offsets = offsets});
        bench.run(GroupedGemm{.use = Use::weight_gradient,
                              .a = bench.put(dy),
                              .b = bench.put(x),
                              .c = gradient,
                              .offsets = offsets});
        std::vector<double> got_y = bench.values_of(y), got = bench.values_of(gradient);
        const auto without_middle = [](std::vector<double> all, std::int64_t begin, std::int64_t count) {
            all.erase(all.begin() + begin, all.begin() + begin + count);
            return all;
        };
        EXPECT_LE(relative_error(without_middle(got_y, 70 * layer.out, 50 * layer.out),
                                 without_middle(expected.y, 70 * layer.out, 50 * layer.out)),
                  1.0 / 256);
        const std::int64_t matrix = layer.out * layer.in;
        EXPECT_LE(relative_error(without_middle(got, matrix, matrix),
                                 without_middle(expected.dweights, matrix, matrix)),
                  1e-5);
    }
}

/// Group sizes that change at the same address, through a sort and through a copy.
TEST(GroupedProduct, OffsetsAreThoseOfNow) {
    const std::int64_t experts = 3, rows = 120;
    const Layer layer(DType::bf16, {40, 40, 40}, 64, 48);
    for (const BackendSettings& method : methods()) {
        SCOPED_TRACE(number_of(method));
        Workbench bench(method);
        const Tensor expert_of = bench.make(DType::i32, {rows, 1});
        const SortByExpert sort{.experts = expert_of,
                                .offsets = bench.make(DType::i32, {experts + 1}),
                                .row_of_slot = bench.make(DType::i32, {rows}),
                                .slot_of_row = bench.make(DType::i32, {rows})};
        for (const std::vector<std::int32_t>& counts :
             {std::vector<std::int32_t>{10, 90, 20}, {100, 0, 20}, {1, 2, 117}, {0, 0, 120}}) {
            std::vector<std::int32_t> chosen;
            for (std::int32_t e = 0; e < experts; ++e) chosen.insert(chosen.end(), counts[e], e);
            bench.backend().copy(bench.backend().main_stream(), Tensor::of(chosen.data(), {rows, 1}),
                                 expert_of);
            bench.run(sort);
            expect_products(bench, layer, sort.offsets, layer.results(offsets_of(counts)));

            const std::vector<std::int32_t> copied = offsets_of({counts[2], counts[0], counts[1]});
            bench.backend().copy(bench.backend().main_stream(), Tensor::of(copied.data(), {experts + 1}),
                                 sort.offsets);
            expect_products(bench, layer, sort.offsets, layer.results(copied));
        }
    }
}

TEST(GroupedProduct, RepeatedRunsGiveEqualBits) {
    const Layer layer(DType::bf16, {200, 33, 0, 290}, 520, 264);
    for (const BackendSettings& method : methods()) {
        SCOPED_TRACE(number_of(method));
        Workbench bench(method);
        const Tensor offsets = bench.put(Tensor::of(layer.offsets.data(), {layer.experts() + 1}));
        const Tensor x = bench.put(layer.x), dy = bench.put(layer.dy), weights = bench.put(layer.weights);
        const auto run = [&](Use use, const Tensor& a, const Tensor& b, const Shape& shape) {
            const Tensor c = bench.make(DType::f32, shape);
            bench.run(GroupedGemm{.use = use, .a = a, .b = b, .c = c, .offsets = offsets});
            return bench.values_of(c);
        };
        for (int again = 0; again < 2; ++again) {
            EXPECT_EQ(run(Use::forward, x, weights, {layer.rows(), layer.out}),
                      run(Use::forward, x, weights, {layer.rows(), layer.out}));
            EXPECT_EQ(run(Use::data_gradient, dy, weights, {layer.rows(), layer.in}),
                      run(Use::data_gradient, dy, weights, {layer.rows(), layer.in}));
            EXPECT_EQ(run(Use::weight_gradient, dy, x, weights.shape()),
                      run(Use::weight_gradient, dy, x, weights.shape()));
        }
    }
}

}  // namespace
}  // namespace drover::test::grouped_gemm_test
