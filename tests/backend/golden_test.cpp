#include <cmath>

#include "backend/backend_under_test.h"
#include "backend/golden_case.h"
#include "backend/test_data.h"

// Every operation against the results of PyTorch and transformers (attention and gemm have their own files).
// fp32 differs only in the order of sums. bf16 may differ where two nearly equal fp32 numbers round
// differently, and where PyTorch rounds intermediate gradients that we keep in fp32.

namespace drover::test::golden_test {
namespace {

constexpr double f32_tolerance = 5e-7;
/// The largest relative error of rounding to bf16, which has eight significant bits.
constexpr double bf16_rounding = 1.0 / 256;
/// For results that are rounded where PyTorch rounds: only single elements may round the other way.
constexpr double bf16_same_rounding = bf16_rounding / 16;

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance, const char* what) {
    ASSERT_TRUE(actual.shape().numel() == expected.shape().numel()) << what;
    EXPECT_LE(relative_error(values(actual), values(expected)), tolerance) << what;
}

TEST(Golden, RmsNorm) {
    for_each_golden_case("rms_norm", [](const GoldenCase& golden) {
        Workbench bench;
        const bool has_residual = golden["has_residual"].get<bool>();
        const Tensor x = bench.put(golden.tensor("x")), weight = bench.put(golden.tensor("weight"));
        const Tensor y = bench.make(golden.dtype(), x.shape()), rstd = bench.make(DType::f32, {x.size(0)});
        RmsNorm forward{
            .residual_in = x, .weight = weight, .y = y, .rstd = rstd, .eps = golden["eps"].get<float>()};
        Tensor residual_out = x;
        if (has_residual) {
            residual_out = bench.make(golden.dtype(), x.shape());
            forward.x = x;
            forward.residual_in = bench.put(golden.tensor("residual"));
            forward.residual_out = residual_out;
        }
        bench.run(forward);
        const double tolerance = golden.is_f32() ? f32_tolerance : bf16_same_rounding;
        expect_close(bench.get(y), golden.tensor("y"), tolerance, "y");
        expect_close(bench.get(rstd), golden.tensor("rstd"), f32_tolerance, "rstd");
        if (has_residual)
            expect_close(bench.get(residual_out), golden.tensor("residual_out"), 0, "residual_out");

        const Tensor dx = bench.make(golden.dtype(), x.shape()),
                     dweight = bench.make(golden.dtype(), weight.shape());
        bench.run(RmsNormBackward{
            .dy = bench.put(golden.tensor("dy")),
            .residual_out = residual_out,
            .weight = weight,
            .rstd = rstd,
            .dresidual_out = has_residual ? bench.put(golden.tensor("dresidual_out")) : Tensor(),
            .dresidual = dx,
            .dweight = dweight});
        expect_close(bench.get(dx), golden.tensor("dx"), golden.is_f32() ? f32_tolerance : bf16_rounding,
                     "dx");
        // PyTorch rounds the normalised value, each product with dy, and the sum; we round only the sum.
        expect_close(bench.get(dweight), golden.tensor("dweight"),
                     golden.is_f32() ? f32_tolerance : 1.5 * bf16_rounding, "dweight");
    });
}

TEST(Golden, HeadNorm) {
    for_each_golden_case("head_norm", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor x = bench.put(golden.tensor("x")), weight = bench.put(golden.tensor("weight"));
        const Tensor y = bench.make(golden.dtype(), x.shape()), dx = bench.make(golden.dtype(), x.shape());
        const Tensor dweight = bench.make(golden.dtype(), weight.shape());
        const auto eps = golden["eps"].get<float>();
        bench.run(HeadNorm{.x = x, .weight = weight, .y = y, .eps = eps});
        bench.run(HeadNormBackward{.dy = bench.put(golden.tensor("dy")),
                                   .x = x,
                                   .weight = weight,
                                   .dx = dx,
                                   .dweight = dweight,
                                   .eps = eps});
        expect_close(bench.get(y), golden.tensor("y"), golden.is_f32() ? f32_tolerance : bf16_same_rounding,
                     "y");
        expect_close(bench.get(dx), golden.tensor("dx"), golden.is_f32() ? f32_tolerance : bf16_rounding,
                     "dx");
        // As for RmsNorm: PyTorch rounds what is summed, we round only the sum.
        expect_close(bench.get(dweight), golden.tensor("dweight"),
                     golden.is_f32() ? f32_tolerance : 1.5 * bf16_rounding, "dweight");
    });
}

TEST(Golden, Rope) {
    for_each_golden_case("rope", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor given = golden.tensor("x");
        const std::int64_t tokens = given.size(0) * given.size(1);
        const Shape heads = {tokens, given.size(2), given.size(3)};
        // Where Hugging Face multiplies in bf16, cosine and sine are bf16 numbers.
        const auto table = [&](const char* name) {
            return bench.put(OwnedTensor::converted(golden.tensor(name), golden.dtype()), DType::f32);
        };
        const Tensor cosine = table("cos"), sine = table("sin");
        const Tensor positions = bench.put(golden.tensor("positions").view({tokens}));
        const Tensor x = bench.put(given.view(heads)), dx = bench.put(golden.tensor("dy").view(heads));
        bench.run(Rope{.x = x, .cosine = cosine, .sine = sine, .positions = positions});
        bench.run(Rope{.x = dx, .cosine = cosine, .sine = sine, .positions = positions, .inverse = true});
        const double tolerance = golden.is_f32() ? f32_tolerance : 0.75 * bf16_rounding;
        expect_close(bench.get(x), golden.tensor("y"), tolerance, "y");
        expect_close(bench.get(dx), golden.tensor("dx"), tolerance, "dx");
    });
}

TEST(Golden, Swiglu) {
    for_each_golden_case("swiglu", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor gate_up = bench.put(golden.tensor("gate_up")), dy = bench.put(golden.tensor("dact"));
        const Tensor y = bench.make(golden.dtype(), dy.shape());
        const Tensor dgate_up = bench.make(golden.dtype(), gate_up.shape());
        bench.run(Swiglu{.gate_up = gate_up, .y = y});
        bench.run(SwigluBackward{.gate_up = gate_up, .dy = dy, .dgate_up = dgate_up});
        const double tolerance = golden.is_f32() ? f32_tolerance : bf16_same_rounding;
        expect_close(bench.get(y), golden.tensor("act"), tolerance, "y");
        expect_close(bench.get(dgate_up), golden.tensor("dgate_up"), tolerance, "dgate_up");
    });
}

TEST(Golden, CrossEntropy) {
    for_each_golden_case("cross_entropy", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor logits = bench.put(golden.tensor("logits")),
                     targets = bench.put(golden.tensor("targets"));
        const Shape rows = targets.shape();
        const Tensor max = bench.make(DType::f32, rows), sum_exp = bench.make(DType::f32, rows);
        const Tensor target_logit = bench.make(DType::f32, rows), argmax = bench.make(DType::i32, rows);
        const Tensor loss = bench.make(DType::f32, rows);
        bench.run(CrossEntropyStatistics{.logits = logits,
                                         .targets = targets,
                                         .max = max,
                                         .sum_exp = sum_exp,
                                         .target_logit = target_logit,
                                         .argmax = argmax});
        CrossEntropyGradient second{.logits = logits,
                                    .targets = targets,
                                    .max = max,
                                    .sum_exp = sum_exp,
                                    .target_logit = target_logit,
                                    .loss = loss};
        bench.run(second);
        expect_close(bench.get(logits), golden.tensor("logits"), 0, "logits after evaluation");
        second.scale = bench.put({golden["scale"].get<float>()});
        bench.run(second);
        EXPECT_EQ(bench.values_of(argmax), values(golden.tensor("argmax")));
        expect_close(bench.get(loss), golden.tensor("loss"), f32_tolerance, "loss");
        const double tolerance = golden.is_f32() ? f32_tolerance : bf16_same_rounding;
        expect_close(bench.get(logits), golden.tensor("dlogits"), tolerance, "dlogits");
    });
}

TEST(Golden, Embedding) {
    for_each_golden_case("embedding", [](const GoldenCase& golden) {
        Workbench bench;
        const Tensor ids = bench.put(golden.tensor("ids")), weight = bench.put(golden.tensor("weight"));
        const Tensor y = bench.make(golden.dtype(), {ids.size(0), weight.size(1)});
        bench.run(Embedding{.ids = ids, .weight = weight, .y = y});
        expect_close(bench.get(y), golden.tensor("y"), 0, "y");

        const Tensor dweight = bench.make(golden.dtype(), weight.shape());
        bench.run(EmbeddingBackward{.ids = ids,
                                    .dy = bench.put(golden.tensor("dy")),
                                    .dweight = dweight,
                                    .padding_id = golden["padding_index"].get<std::int64_t>()});
        if (golden.is_f32()) {
            expect_close(bench.get(dweight), golden.tensor("dweight"), f32_tolerance, "dweight");
        } else {
            // Sums of a few bf16 numbers are exact in fp32, so rounding the golden sum gives exactly the same
            // bits.
            const OwnedTensor rounded = OwnedTensor::converted(golden.tensor("dweight"), DType::bf16);
            EXPECT_EQ(bench.values_of(dweight), values(rounded));
        }
    });
}

TEST(Golden, BiasGradient) {
    for_each_golden_case("gemm", [](const GoldenCase& golden) {
        if (!golden["has_bias"].get<bool>()) return;
        Workbench bench;
        const Tensor dy = bench.put(golden.tensor("dy"));
        const Tensor dbias = bench.make(DType::f32, {dy.size(1)});
        bench.run(BiasGradient{.dy = dy, .dbias = dbias});
        expect_close(bench.get(dbias), golden.tensor("db"), f32_tolerance, "dbias");
    });
}

TEST(Golden, AdamW) {
    for_each_golden_case("adamw", [](const GoldenCase& golden) {
        Workbench bench;
        const double beta1 = golden["beta1"].get<double>(), beta2 = golden["beta2"].get<double>();
        std::vector<std::string> names;
        std::vector<AdamWLeaf> leaves;
        for (const Json& tensor : golden["tensors"]) {
            names.push_back(tensor.at("name").get<std::string>());
            const Tensor param = bench.put(golden.tensor(names.back() + ".p0"));
            AdamWLeaf leaf{.param = param,
                           .gradient = {},
                           .exp_avg = bench.make(golden.dtype(), param.shape()),
                           .exp_avg_sq = bench.make(golden.dtype(), param.shape()),
                           .weight_decay = tensor.at("weight_decay").get<float>()};
            bench.run(Fill{.x = leaf.exp_avg, .value = 0});
            bench.run(Fill{.x = leaf.exp_avg_sq, .value = 0});
            leaves.push_back(leaf);
        }
        for (int step = 0; step < golden["steps"].get<int>(); ++step) {
            for (std::size_t i = 0; i < leaves.size(); ++i)
                leaves[i].gradient = bench.put(golden.tensor(names[i] + ".g" + std::to_string(step)));
            std::vector<float> scalars(StepScalar::count, 0.f);
            scalars[StepScalar::learning_rate] = golden["learning_rates"][step].get<float>();
            scalars[StepScalar::bias_correction1] = static_cast<float>(1 - std::pow(beta1, step + 1));
            scalars[StepScalar::bias_correction2] = static_cast<float>(1 - std::pow(beta2, step + 1));
            scalars[StepScalar::clip_factor] = 1;
            bench.run(AdamW{.leaves = leaves,
                            .scalars = bench.put(Tensor::of(scalars.data(), {StepScalar::count})),
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .eps = golden["epsilon"].get<float>()});
        }
        const double tolerance = golden.is_f32() ? f32_tolerance : bf16_same_rounding;
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            expect_close(bench.get(leaves[i].param), golden.tensor(names[i] + ".p"), tolerance,
                         names[i].c_str());
            expect_close(bench.get(leaves[i].exp_avg), golden.tensor(names[i] + ".m"), tolerance,
                         names[i].c_str());
            expect_close(bench.get(leaves[i].exp_avg_sq), golden.tensor(names[i] + ".v"), tolerance,
                         names[i].c_str());
        }
    });
}

}  // namespace
}  // namespace drover::test::golden_test
