#include <gtest/gtest.h>

#include "core/json_text.h"
#include "core/torch_rng.h"
#include "optim/schedule.h"
#include "train/golden_run.h"

namespace drover {
namespace {

using test::batch_of_samples;
using test::GoldenRun;

struct Limits {
    double loss, norm, sum;
};

void expect_curve(const std::string& name, const Precision& precision, const Limits& limits) {
    const Json golden = read_json_file(test::golden_path("curve/" + name + ".json"));
    const GoldenRun run(golden, precision);
    const Schedule schedule(golden.at("scheduler").get<std::string>(),
                            golden.at("optimizer").at("learning_rate"), golden.at("warmup_steps"),
                            golden.at("num_training_steps"));
    std::int64_t step = 0;
    for (const Json& expected : golden.at("steps")) {
        std::vector<Batch> micro_batches;
        for (const Json& samples : expected.at("batches"))
            micro_batches.push_back(
                batch_of_samples(samples, golden.at("sample_length"), golden.at("vocab_size")));
        const UpdateResult result = run.engine->step(micro_batches, schedule.rate(step));
        EXPECT_NEAR(schedule.rate(step), expected.at("learning_rate").get<double>(), 1e-12);
        EXPECT_NEAR(result.loss, expected.at("loss").get<double>(), limits.loss) << "step " << step;
        const double norm = expected.at("grad_norm");
        EXPECT_NEAR(result.gradient_norm, norm, limits.norm * norm) << "step " << step;
        ++step;
    }
    EXPECT_GE(step, 20);
    for (const auto& [leaf, sum] : golden.at("final_sums").items())
        EXPECT_NEAR(run.sum_of(leaf), sum.get<double>(), limits.sum) << leaf;
}

TEST(Curve, AdamWLinear) {
    expect_curve("linear", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, AdamWCosineWithAccumulation) {
    expect_curve("cosine_accumulation", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

// At a rate small enough that rounding to bf16 does not decide the course of the run.
TEST(Curve, PureBfloat16) {
    expect_curve("bfloat16", Precision::pure_bf16(), {.loss = 1.5e-2, .norm = 0.1, .sum = 0.2});
}

TEST(Curve, AdafactorLinear) {
    expect_curve("adafactor", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

// transformers' own bf16 losses differ from its fp32 losses by up to 0.015 here.
TEST(Curve, AdafactorPureBfloat16) {
    expect_curve("adafactor_bfloat16", Precision::pure_bf16(), {.loss = 1.5e-2, .norm = 0.1, .sum = 0.1});
}

TEST(Curve, SgdCosine) {
    expect_curve("sgd", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, AdagradLinear) {
    expect_curve("adagrad", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, RmspropLinear) {
    expect_curve("rmsprop", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

/// All experts of a block are two tensors to the optimizer.
TEST(Curve, MixtralAdafactor) {
    expect_curve("mixtral_adafactor", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, MixtralAdamW) {
    expect_curve("mixtral_adamw", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, MistralWithAWindow) {
    expect_curve("mistral", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, Qwen2) {
    expect_curve("qwen2", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, Qwen3) {
    expect_curve("qwen3", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

TEST(Curve, Qwen3Adafactor) {
    expect_curve("qwen3_adafactor", Precision::fp32(), {.loss = 2e-4, .norm = 1e-3, .sum = 2e-2});
}

// transformers' autocast keeps the residual stream in fp32 and rounds at other points than we do.
TEST(Curve, Bfloat16WithMasterWeights) {
    expect_curve("llama_bf16_master", Precision::with_master(DType::bf16),
                 {.loss = 5e-3, .norm = 0.05, .sum = 0.2});
}

/// Whole runs of transformers 4.43 with two epochs, and an evaluation after them.
void expect_published_run(const std::string& name) {
    const Json golden = read_json_file(test::golden_path("curve/published_runs.json")).at(name);
    const GoldenRun run(golden, Precision::fp32(), HfCompat::v4_43());
    const std::int64_t samples = golden.at("num_samples"), batch = golden.at("batch_size");
    const std::vector<double> losses = golden.at("loss"), norms = golden.at("grad_norm");
    const Schedule schedule(golden.at("scheduler").get<std::string>(),
                            golden.at("optimizer").at("learning_rate"), golden.at("warmup_steps"),
                            static_cast<std::int64_t>(losses.size()));
    for (std::size_t step = 0; step < losses.size(); ++step) {
        const std::int64_t per_epoch = samples / batch, position = static_cast<std::int64_t>(step);
        TorchRng generator(golden.at("seed").get<std::uint64_t>() +
                           static_cast<std::uint64_t>(position / per_epoch));
        const std::vector<std::int64_t> order = generator.randperm(samples);
        std::vector<int> chosen;
        for (std::int64_t i = 0; i < batch; ++i)
            chosen.push_back(
                static_cast<int>(order[static_cast<std::size_t>(position % per_epoch * batch + i)]));
        const std::vector<Batch> micro_batches = {batch_of_samples(chosen, 16, 64)};
        const UpdateResult result = run.engine->step(micro_batches, schedule.rate(position));
        EXPECT_NEAR(result.loss, losses[step], 5e-6) << step;
        EXPECT_NEAR(result.gradient_norm, norms[step], 5e-5) << step;
    }
    for (const auto& [leaf, sum] : golden.at("final_sums").items())
        EXPECT_NEAR(run.sum_of(leaf), sum.get<double>(), 1e-4) << leaf;

    // One batch, as in transformers: the experts' balance loss is computed from all of it.
    const EvaluationResult result = run.engine->evaluate(batch_of_samples(golden.at("eval_samples"), 16, 64));
    EXPECT_NEAR(result.mean_loss() + result.balance_loss, golden.at("eval_loss").get<double>(), 5e-6);
}

TEST(Curve, PublishedRunOfTheOlderReleaseAdamW) {
    expect_published_run("llama_adamw");
}

TEST(Curve, PublishedRunOfTheOlderReleaseAdafactor) {
    expect_published_run("llama_adafactor");
}

TEST(Curve, PublishedRunOfTheOlderReleaseSgd) {
    expect_published_run("llama_sgd");
}

TEST(Curve, PublishedRunOfTheOlderReleaseMixtral) {
    expect_published_run("mixtral_adamw");
}

TEST(Curve, DenominatorOfRelease457IsSmallerByOnePosition) {
    const Json golden = read_json_file(test::golden_path("curve/linear.json"));
    const GoldenRun exact(golden, Precision::fp32());
    const GoldenRun older(golden, Precision::fp32(),
                          {.loss_denominator = HfCompat::LossDenominator::all_labels});
    const std::vector<Batch> micro_batches = {batch_of_samples({0, 1}, 16, 64)};
    const double ratio =
        older.engine->step(micro_batches, 0).loss / exact.engine->step(micro_batches, 0).loss;
    EXPECT_NEAR(ratio, 15.0 / 16.0, 1e-9);
}

}  // namespace
}  // namespace drover
