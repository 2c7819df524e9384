#include "train/engine/loss_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/json_text.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

TEST(LossScaler, MovesAsTorchsGradScaler) {
    const Json cases = read_json_file(test::golden_path("loss_scaler.json"));
    ASSERT_EQ(cases.size(), 3u);
    for (const Json& golden : cases) {
        const Json& settings = golden.at("settings");
        LossScaler scaler({.initial = settings.at("init_scale").get<float>(),
                           .growth = settings.at("growth_factor").get<float>(),
                           .backoff = settings.at("backoff_factor").get<float>(),
                           .growth_interval = settings.at("growth_interval").get<int>()});
        const auto overflows = golden.at("overflows").get<std::set<int>>();
        std::vector<std::pair<int, double>> changes;
        for (int step = 0; step < golden.at("steps").get<int>(); ++step) {
            scaler.update(!overflows.contains(step));
            const auto scale = static_cast<double>(scaler.scale());
            if (changes.empty() || changes.back().second != scale) changes.emplace_back(step, scale);
        }
        EXPECT_EQ(changes, (golden.at("changes").get<std::vector<std::pair<int, double>>>()))
            << golden.at("name");
    }
    EXPECT_EQ(LossScaler().scale(), 65536);
}

class ScaledSteps : public ::testing::TestWithParam<const char*> {
  protected:
    const test::GoldenStep golden_{GetParam()};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const std::vector<Batch> batches_ = {golden_.batch(), golden_.batch()};
};

/// A power of two changes no bit of the result, as long as nothing overflows or underflows.
TEST_P(ScaledSteps, TrainAsUnscaledOnesDo) {
    TrainEngineOptions options = golden_.options(Precision::fp32());
    const auto plain = golden_.engine(*backend_, options);
    options.loss_scaling = LossScaling{.initial = 1024, .growth_interval = 2};
    const auto scaled = golden_.engine(*backend_, options);
    for (int step = 0; step < 4; ++step) {
        EXPECT_EQ(scaled->loss_scaler()->scale(), step < 2 ? 1024 : 2048);
        const UpdateResult expected = plain->step(batches_, 1e-2), result = scaled->step(batches_, 1e-2);
        EXPECT_NEAR(result.loss, expected.loss, 1e-6);
        EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 1e-5 * expected.gradient_norm);
        EXPECT_TRUE(result.updated);
    }
    for (std::size_t i = 0; i < plain->store().owned().size(); ++i)
        EXPECT_LE(test::relative_error(scaled->store().owned()[i].param, plain->store().owned()[i].param),
                  1e-5);
}

TEST_P(ScaledSteps, ThatOverflowAreSkippedAndHalveTheScale) {
    TrainEngineOptions options = golden_.options(Precision::fp32());
    options.loss_scaling = LossScaling{.initial = std::numeric_limits<float>::max()};
    const auto engine = golden_.engine(*backend_, options);
    // A steep head: the gradient through it is too large for fp32 once it is scaled.
    const Tensor head = engine->store().owned().back().param;
    std::vector<float> steep;
    for (const double weight : test::values(head)) steep.push_back(static_cast<float>(1000 * weight));
    test::overwrite(head, 0, steep);
    const auto before = test::values(engine->store().owned()[0].param);
    const UpdateResult result = engine->step(batches_, 1e-2);
    EXPECT_FALSE(result.updated);
    EXPECT_FALSE(result.non_finite.has_value());  // this is how the scale is found
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_EQ(engine->updates_done(), 0);
    EXPECT_EQ(test::values(engine->store().owned()[0].param), before);
    EXPECT_EQ(engine->loss_scaler()->scale(), std::numeric_limits<float>::max() / 2);
    int steps = 0;
    while (!engine->step(batches_, 1e-2).updated) ASSERT_LT(++steps, 200);
    EXPECT_EQ(engine->updates_done(), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, ScaledSteps, ::testing::Values("gqa_float32", "mixtral_aux_top2_float32"));

TEST(Float16, IsRefusedByTheCpuWithASentence) {
    if (test::tests_use_cuda()) GTEST_SKIP() << "the GPU has float16";
    const auto backend = test::make_test_backend();
    const test::GoldenStep golden("gqa_float32");
    Precision precision;
    precision.parameters = precision.residual = DType::f16;
    precision.master = true;
    test::expect_error<UsageError>([&] { golden.engine(*backend, precision); }, {"float16", "--bf16"});
}

}  // namespace
}  // namespace drover
