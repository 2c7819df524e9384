#include <gtest/gtest.h>

#include <functional>

#include "backend/adafactor_run.h"
#include "backend/golden_case.h"
#include "backend/test_data.h"

// SGD, Adagrad and RMSprop against PyTorch's numbers and against their formulas in doubles.

namespace drover::test::moment_updates_test {
namespace {

/// One of the three optimizers: how to run it, and its update of one element in doubles (g already includes
/// weight decay).
struct Method {
    std::string name;
    std::string state;  ///< the moment's name in the golden file, empty for none
    std::function<void(Workbench&, std::span<const MomentLeaf>, const Tensor& scalars)> run;
    std::function<double(double g, double& moment)> direction;
};

std::vector<Method> methods() {
    return {
        {"sgd", "",
         [](Workbench& bench, std::span<const MomentLeaf> leaves, const Tensor& scalars) {
             bench.run(Sgd{.leaves = leaves, .scalars = scalars});
         },
         [](double g, double&) { return g; }},
        {"sgd", "momentum",
         [](Workbench& bench, std::span<const MomentLeaf> leaves, const Tensor& scalars) {
             bench.run(Sgd{.leaves = leaves, .scalars = scalars, .momentum = 0.9f});
         },
         [](double g, double& moment) { return moment = 0.9 * moment + g; }},
        {"adagrad", "sum",
         [](Workbench& bench, std::span<const MomentLeaf> leaves, const Tensor& scalars) {
             bench.run(Adagrad{.leaves = leaves, .scalars = scalars});
         },
         [](double g, double& moment) { return g / (std::sqrt(moment += g * g) + 1e-10); }},
        {"rmsprop", "v",
         [](Workbench& bench, std::span<const MomentLeaf> leaves, const Tensor& scalars) {
             bench.run(Rmsprop{.leaves = leaves, .scalars = scalars});
         },
         [](double g, double& moment) {
             moment = 0.99 * moment + 0.01 * g * g;
             return g / (std::sqrt(moment) + 1e-8);
         }},
    };
}

TEST(MomentUpdates, MixedTypesMatchTheReference) {
    const double learning_rate = 0.01, decay = 0.1, factor = 0.5;
    const std::vector<DType> types = activation_types();
    for (const Method& method : methods())
        for (DType param_type : types)
            for (DType gradient_type : types)
                for (DType moment_type : types)
                    for (bool with_master : {false, true}) {
                        SCOPED_TRACE(testing::Message() << method.name << ' ' << name_of(param_type) << ' '
                                                        << name_of(gradient_type) << ' '
                                                        << name_of(moment_type) << ' ' << with_master);
                        Workbench bench;
                        const Shape shape = {3, 11};
                        const OwnedTensor p = random_normal(param_type, shape, 1),
                                          g = random_normal(gradient_type, shape, 2);
                        // The master copy holds digits that the parameter has lost.
                        const OwnedTensor master = random_normal(DType::f32, shape, 1);
                        const OwnedTensor moment = random_normal(moment_type, shape, 4, 0.01, 0.2);
                        const MomentLeaf leaves[] = {
                            {.param = bench.put(p),
                             .gradient = bench.put(g),
                             .moment = method.state.empty() ? Tensor() : bench.put(moment),
                             .master = with_master ? bench.put(master) : Tensor(),
                             .weight_decay = static_cast<float>(decay)}};
                        method.run(bench, leaves, step_scalars(bench, learning_rate, 3, factor));

                        std::vector<double> expected = values(with_master ? master : p),
                                            expected_moment = values(moment);
                        const std::vector<double> gradient = values(g);
                        for (std::size_t i = 0; i < expected.size(); ++i)
                            expected[i] -=
                                learning_rate * method.direction(gradient[i] * factor + decay * expected[i],
                                                                 expected_moment[i]);
                        const auto tolerance = [](DType dtype) {
                            return dtype == DType::f32 ? 2e-7 : 1.0 / 256;
                        };
                        EXPECT_LE(relative_error(bench.values_of(leaves[0].param), expected),
                                  tolerance(param_type));
                        if (!method.state.empty()) {
                            EXPECT_LE(relative_error(bench.values_of(leaves[0].moment), expected_moment),
                                      tolerance(moment_type));
                        }
                        if (!with_master) continue;
                        EXPECT_LE(relative_error(bench.values_of(leaves[0].master), expected),
                                  tolerance(DType::f32));
                        EXPECT_EQ(bench.values_of(leaves[0].param),
                                  values(OwnedTensor::converted(bench.get(leaves[0].master), param_type)));
                    }
}

TEST(MomentUpdates, Golden) {
    for (const Method& method : methods()) {
        if (method.state == "momentum") continue;  // the Trainer does not use it
        SCOPED_TRACE(method.name);
        for_each_golden_case(method.name, [&](const GoldenCase& golden) {
            Workbench bench;
            std::vector<std::string> names;
            std::vector<MomentLeaf> leaves;
            for (const Json& tensor : golden["tensors"]) {
                names.push_back(tensor.at("name").get<std::string>());
                const Tensor p0 = golden.tensor(names.back() + ".p0");
                MomentLeaf leaf{.param = bench.put(p0.view({p0.numel()})),
                                .gradient = bench.make(golden.dtype(), {p0.numel()}),
                                .weight_decay = tensor.at("weight_decay").get<float>()};
                if (!method.state.empty()) {
                    leaf.moment = bench.make(golden.dtype(), {p0.numel()});
                    bench.run(Fill{.x = leaf.moment, .value = 0});
                }
                leaves.push_back(leaf);
            }
            for (int step = 0; step < golden["steps"].get<int>(); ++step) {
                for (std::size_t i = 0; i < leaves.size(); ++i)
                    leaves[i].gradient = bench.put(golden.tensor(names[i] + ".g" + std::to_string(step)));
                method.run(bench, leaves,
                           step_scalars(bench, golden["learning_rates"][step].get<double>(), step + 1));
            }
            // If PyTorch rounds every single operation to bf16 ("plain"), its result is less accurate; if it
            // rounds as we do, single elements may round the other way.
            const bool rounds_each_operation = !golden.is_f32() && golden["implementation"] == "plain";
            const double tolerance = golden.is_f32() ? 5e-7 : rounds_each_operation ? 1.0 / 64 : 1.0 / 4096;
            for (std::size_t i = 0; i < leaves.size(); ++i) {
                EXPECT_LE(
                    relative_error(bench.values_of(leaves[i].param), values(golden.tensor(names[i] + ".p"))),
                    tolerance)
                    << names[i];
                if (method.state.empty()) continue;
                EXPECT_LE(relative_error(bench.values_of(leaves[i].moment),
                                         values(golden.tensor(names[i] + "." + method.state))),
                          tolerance)
                    << names[i];
            }
        });
    }
}

}  // namespace
}  // namespace drover::test::moment_updates_test
