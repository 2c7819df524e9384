#include <gtest/gtest.h>
#include <omp.h>

#include "model/params.h"
#include "parallel/threads_run.h"
#include "support/errors.h"

namespace drover {
namespace {

using Kind = PipelineScheduleKind;

constexpr int fp8_steps = 4;

/// Sides that are multiples of 16 on each of 4 ranks.
std::vector<test::MeshModel> fp8_models(Fp8Recipe recipe) {
    const auto model = [=](const char* name, const std::string& more) {
        const std::string text = R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)" +
                                 more + "}";
        return test::MeshModel{.name = name, .config = ModelConfig::parse(text, name), .fp8 = recipe};
    };
    std::vector<test::MeshModel> models = {model("biases", R"(, "attention_bias": true, "mlp_bias": true)"),
                                           model("qwen3", R"(, "model_type": "qwen3")")};
    // Of several blocks with scales, which begin elsewhere on two ranks and on four than on one.
    if (recipe == Fp8Recipe::blockwise) {
        models.push_back(model("wide", ""));
        models.back().config.intermediate_size = 576;
    }
    // Frozen matrices, whose copies in FP8 are kept, beside one that is trained.
    test::MeshModel& adapters = models.emplace_back(models[0]);
    adapters.name = "adapters";
    for (const std::string& leaf : names_in_module_order(adapters.config))
        if (leaf.ends_with("q_proj.weight") || leaf.ends_with("o_proj.weight") ||
            leaf.ends_with("up_proj.weight"))
            adapters.adapters.weights.push_back({.leaf = leaf, .rank = 4, .scale = 2});
    adapters.adapters.trained_leaves = {"model.layers.1.mlp.down_proj.weight"};
    return models;
}

class Fp8Mesh : public ::testing::TestWithParam<Fp8Recipe> {};

/// Each replica has the scales of its own tokens, so a run is compared with one of as many replicas. Rounding
/// may move a number over an edge of FP8; the limits allow for a few, and are far below what FP8 itself does.
TEST_P(Fp8Mesh, SharedWeightsAndSplitMatricesTrainAsWholeOnes) {
    omp_set_num_threads(1);
    const std::vector<test::MeshCase> cases{
        {.shape = {.data = 2}, .sharding = Sharding::zero1, .accumulation = 2},
        {.shape = {.data = 2}, .sharding = Sharding::zero2, .accumulation = 2},
        {.shape = {.data = 2}, .sharding = Sharding::zero3, .accumulation = 2, .recompute = Recompute::full},
        {.shape = {.tp = 2}},
        {.shape = {.tp = 2}, .sequence_parallel = true, .accumulation = 2},
        {.shape = {.data = 2, .tp = 2}, .sharding = Sharding::zero3, .sequence_parallel = true},
    };
    for (const test::MeshModel& model : fp8_models(GetParam()))
        for (const test::MeshCase& mesh_case : cases) {
            test::MeshCase whole = mesh_case.alone();
            whole.shape.data = mesh_case.shape.data;
            const test::MeshRun run = test::run_on_threads(model, mesh_case, fp8_steps),
                                expected = test::run_on_threads(model, whole, fp8_steps);
            const test::MeshDifference difference = test::compare(run, expected);
            EXPECT_TRUE(difference.loss <= 1e-4 && difference.norm <= 1e-2 && difference.all_weights <= 3e-2)
                << model.name << ", " << mesh_case.text() << ": " << difference.text();
            EXPECT_NEAR(run.evaluated_loss, expected.evaluated_loss, 1e-6 * expected.evaluated_loss);
        }
}

/// Two ranks have copies of a key/value head, and each quantises its own part of the head's gradient before
/// the parts are added. Forward is as on one process; training is within FP8's own error.
TEST_P(Fp8Mesh, CopiedHeadsQuantiseTheirPartsOfGradients) {
    omp_set_num_threads(1);
    for (const test::MeshModel& model : fp8_models(GetParam()))
        for (const bool sequence_parallel : {false, true}) {
            const test::MeshCase mesh_case{.shape = {.tp = 4}, .sequence_parallel = sequence_parallel};
            const test::MeshRun run = test::run_on_threads(model, mesh_case, fp8_steps),
                                expected = test::run_on_threads(model, mesh_case.alone(), fp8_steps);
            const test::MeshDifference difference = test::compare(run, expected);
            EXPECT_TRUE(difference.loss <= 5e-3 && difference.all_weights <= 0.3)
                << model.name << ", " << mesh_case.text() << ": " << difference.text();
            // Of later updates' gradients, which are those of other weights, the norm says less.
            EXPECT_NEAR(run.norms[0], expected.norms[0], 2e-2 * expected.norms[0]) << model.name;
            EXPECT_NEAR(run.evaluated_loss, expected.evaluated_loss, 1e-6 * expected.evaluated_loss);
        }
}

/// Stages compute what the same ranks without a pipeline do, with weight gradients that wait or not.
TEST_P(Fp8Mesh, PipelinesHaveTheBitsOfTheMeshWithoutOne) {
    omp_set_num_threads(1);
    const std::vector<test::MeshCase> cases{
        {.shape = {.pp = 2}},
        {.shape = {.pp = 4}, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2}, .recompute = Recompute::full, .chunks = 2},
        {.shape = {.pp = 2}, .schedule = Kind::zero_bubble, .chunks = 2},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero1, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero3, .last_rows = 3, .chunks = 2},
    };
    for (const test::MeshModel& model : fp8_models(GetParam()))
        for (const Precision& precision : {Precision::fp32(), Precision::with_master(DType::bf16)})
            for (test::MeshCase mesh_case : cases) {
                mesh_case.accumulation = 3;
                mesh_case.precision = precision;
                test::MeshCase without = mesh_case;
                without.shape.pp = without.chunks = 1;
                without.schedule = Kind::one_forward_one_backward;
                without.recompute = Recompute::none;
                test::expect_equal_bits(test::run_on_threads(model, mesh_case, fp8_steps),
                                        test::run_on_threads(model, without, fp8_steps),
                                        model.name + ", " + mesh_case.text());
            }
}

TEST_P(Fp8Mesh, EveryRanksShareOfASideIsAMultipleOf16) {
    test::MeshModel model = fp8_models(GetParam())[0];
    model.config.intermediate_size = 48;
    const auto run = [&](const MeshShape& shape) {
        return test::error_of([&] { test::run_on_threads(model, {.shape = shape}, 1); });
    };
    EXPECT_EQ(run({.tp = 2}),
              "intermediate_size is 48, but FP8 products take multiples of 16 on each of 2 ranks. Train "
              "without --fp8.");
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Mesh, ::testing::Values(Fp8Recipe::tensorwise, Fp8Recipe::blockwise),
                         [](const auto& recipe) {
                             return std::string(recipe.param == Fp8Recipe::tensorwise ? "tensorwise"
                                                                                      : "blockwise");
                         });

}  // namespace
}  // namespace drover
