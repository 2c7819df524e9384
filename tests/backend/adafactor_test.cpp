#include <gtest/gtest.h>

#include <algorithm>

#include "backend/adafactor_run.h"
#include "backend/golden_case.h"
#include "backend/test_data.h"

namespace drover::test::adafactor_test {
namespace {

void expect_values(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
}

/// Numbers from transformers 4.43.
TEST(Adafactor, TwoStepsOfASmallMatrixAndAVector) {
    Workbench bench;
    AdafactorRun run(bench);
    const float p[] = {.1f, -.2f, .3f, .4f, .5f, -.6f}, b[] = {1, 1, 1};
    const float g[] = {.01f, .02f, -.03f, .001f, -.2f, .3f}, gb[] = {.5f, -.25f, .125f};
    const std::size_t matrix = run.add(Tensor::of(p, {2, 3}), DType::f32, 0),
                      vector = run.add(Tensor::of(b, {3}), DType::f32, 0);
    run.set_gradient(matrix, Tensor::of(g, {2, 3}));
    run.set_gradient(vector, Tensor::of(gb, {3}));
    run.step(0.01, 1);
    expect_values(bench.values_of(run[matrix].param),
                  {0.075999767, -0.20240003, 0.30240002, 0.39975095, 0.50249064, -0.60249066}, 3e-8);
    expect_values(bench.values_of(run[vector].param), {0.99, 1.01, 0.99}, 6e-8);

    float doubled[6];
    for (std::size_t i = 0; i < 6; ++i) doubled[i] = 2 * g[i];
    run.set_gradient(matrix, Tensor::of(doubled, {2, 3}));
    run.step(0.01, 2);
    expect_values(bench.values_of(run[matrix].param),
                  {0.051999524, -0.20480005, 0.30480003, 0.39950189, 0.50498128, -0.6049813}, 6e-8);
    expect_values(bench.values_of(run[vector].param), {0.98, 1.02, 0.98}, 1.2e-7);
}

TEST(Adafactor, Golden) {
    for_each_golden_case("adafactor", [](const GoldenCase& golden) {
        Workbench bench;
        AdafactorRun run(bench);
        std::vector<std::string> names;
        for (const Json& tensor : golden["tensors"]) {
            names.push_back(tensor.at("name").get<std::string>());
            run.add(golden.tensor(names.back() + ".p0"), golden.dtype(),
                    tensor.at("weight_decay").get<double>());
        }
        for (int step = 0; step < golden["steps"].get<int>(); ++step) {
            for (std::size_t i = 0; i < names.size(); ++i)
                run.set_gradient(i, golden.tensor(names[i] + ".g" + std::to_string(step)));
            run.step(golden["learning_rates"][step].get<double>(), step + 1);
        }
        const auto expect_close = [&](const Tensor& actual, const std::string& field, double tolerance) {
            EXPECT_LE(relative_error(bench.values_of(actual), values(golden.tensor(field))), tolerance)
                << field;
        };
        for (std::size_t i = 0; i < names.size(); ++i) {
            // In bf16, single elements may round the other way if fp32 differs in its last digit.
            expect_close(run[i].param, names[i] + ".p", golden.is_f32() ? 5e-7 : 1.0 / 4096);
            if (run[i].means) {
                expect_close(run[i].means, names[i] + ".v", 5e-7);
            } else {
                expect_close(run[i].rows, names[i] + ".row", 5e-7);
                expect_close(run[i].columns, names[i] + ".column", 5e-7);
            }
        }
    });
}

/// Adafactor in doubles on one matrix.
struct Reference {
    std::vector<double> param, rows, columns;

    void step(const std::vector<double>& g, double learning_rate, double weight_decay, int number) {
        const std::size_t height = rows.size(), width = columns.size();
        const double share = std::pow(number, -0.8);
        std::vector<double> row_squares(height), column_squares(width);
        for (std::size_t i = 0; i < g.size(); ++i) {
            row_squares[i / width] += (g[i] * g[i] + 1e-30) / static_cast<double>(width);
            column_squares[i % width] += (g[i] * g[i] + 1e-30) / static_cast<double>(height);
        }
        double mean = 0;
        for (std::size_t i = 0; i < height; ++i) {
            rows[i] += share * (row_squares[i] - rows[i]);
            mean += rows[i] / static_cast<double>(height);
        }
        for (std::size_t i = 0; i < width; ++i) columns[i] += share * (column_squares[i] - columns[i]);
        double squares = 0;
        const auto update = [&](std::size_t i) {
            return g[i] / std::sqrt(rows[i / width] / mean * columns[i % width]);
        };
        for (std::size_t i = 0; i < g.size(); ++i) squares += update(i) * update(i);
        const double clip = std::max(1.0, std::sqrt(squares / static_cast<double>(g.size())));
        for (std::size_t i = 0; i < g.size(); ++i)
            param[i] = param[i] * (1 - learning_rate * weight_decay) - learning_rate * update(i) / clip;
    }
};

/// More rows and columns than one block, one slice and one task hold; every type; with and without a master
/// copy.
TEST(Adafactor, LargeMatricesOfEveryTypeMatchTheReference) {
    struct Types {
        DType param, gradient;
        bool with_master;
    };
    for (const Shape& shape : {Shape{700, 401}, Shape{1, 5000}, Shape{5000, 1}, Shape{300, 131},
                               Shape{300, 264}, Shape{257, 8}, Shape{8, 2056}})
        for (const Types types :
             {Types{DType::f32, DType::f32, false}, Types{DType::bf16, DType::f32, true},
              Types{DType::bf16, DType::bf16, true}, Types{DType::bf16, DType::f32, false},
              Types{DType::bf16, DType::bf16, false}, Types{DType::f32, DType::bf16, false}}) {
            SCOPED_TRACE(testing::Message()
                         << shape.text() << ' ' << name_of(types.param) << ' ' << types.with_master);
            Workbench bench;
            AdafactorRun run(bench);
            const OwnedTensor p = random_normal(types.param, shape, 1);
            const std::size_t leaf = run.add(p, types.gradient, 0.1, types.with_master);
            Reference reference{values(p), std::vector<double>(static_cast<std::size_t>(shape[0])),
                                std::vector<double>(static_cast<std::size_t>(shape[1]))};
            const Tensor& exact = types.with_master ? run[leaf].master : run[leaf].param;
            for (int step = 1; step <= 3; ++step) {
                // Growing, so that the update is clipped.
                const OwnedTensor g =
                    random_normal(types.gradient, shape, static_cast<unsigned>(step + 10), step * step);
                std::vector<double> clipped = values(g);
                for (double& x : clipped) x *= 0.5;
                reference.param = bench.values_of(exact);
                reference.step(clipped, 0.01, 0.1, step);
                run.set_gradient(leaf, g);
                run.step(0.01, step, 0.5);
                EXPECT_LE(relative_error(bench.values_of(exact), reference.param),
                          exact.dtype() == DType::f32 ? 2e-7 : 1.0 / 256);
                EXPECT_EQ(bench.values_of(run[leaf].param),
                          values(OwnedTensor::converted(bench.get(exact), types.param)));
            }
            EXPECT_LE(relative_error(bench.values_of(run[leaf].rows), reference.rows), 1e-6);
            EXPECT_LE(relative_error(bench.values_of(run[leaf].columns), reference.columns), 1e-6);
        }
}

}  // namespace
}  // namespace drover::test::adafactor_test
