#include <gtest/gtest.h>
#include <omp.h>

#include "parallel/threads_run.h"

// What a training run can have beside a model and a mesh, on a pipeline.

namespace drover {
namespace {

constexpr int feature_steps = 3;
using Kind = PipelineScheduleKind;
using LossDenominator = HfCompat::LossDenominator;

/// One of each: several stages, several chunks with tensor parallelism, weights that wait, sharded weights.
std::vector<test::MeshCase> pipelines() {
    return {
        {.shape = {.pp = 4}, .accumulation = 6},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 4, .chunks = 2},
        {.shape = {.pp = 2, .data = 2},
         .sharding = Sharding::zero1,
         .accumulation = 3,
         .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .data = 2},
         .sharding = Sharding::zero3,
         .accumulation = 5,
         .schedule = Kind::zero_bubble,
         .chunks = 2},
    };
}

test::MeshModel pipeline_model(std::string_view name) {
    for (const test::MeshModel& model : test::pipeline_models(5))
        if (model.name == name) return model;
    bug("no such model");
}

void expect_as_one_process(const test::MeshModel& model, const test::MeshCase& mesh_case) {
    omp_set_num_threads(1);
    const test::MeshRun alone = test::train_on_mesh(model, mesh_case.alone(), Mesh(), feature_steps);
    EXPECT_EQ(test::complaints_on_threads(model, mesh_case, alone, feature_steps), std::set<std::string>{})
        << model.name << ", " << mesh_case.text();
}

/// Trains `model` on each of pipelines(), after a change.
template <class Change>
void expect_pipelines_as_one_process(const test::MeshModel& model, const Change& change) {
    for (test::MeshCase mesh_case : pipelines()) {
        change(mesh_case);
        expect_as_one_process(model, mesh_case);
    }
}
void expect_pipelines_as_one_process(const test::MeshModel& model) {
    expect_pipelines_as_one_process(model, [](test::MeshCase&) {});
}

TEST(PipelineFeatures, RouterNoise) {
    test::MeshModel model = pipeline_model("mixtral");
    model.config.moe.jitter = 0.1;
    expect_pipelines_as_one_process(model);
}

/// Label smoothing leaves no balance loss, so messages of experts have one part less.
TEST(PipelineFeatures, LabelSmoothingAndNeftune) {
    for (const char* name : {"tied", "mixtral"}) {
        test::MeshModel model = pipeline_model(name);
        model.label_smoothing = 0.2;
        model.neftune_alpha = 0.3;
        expect_pipelines_as_one_process(model);
    }
}

/// Each micro-batch has a loss scale of its own, which the head's rank needs at another time than the others.
TEST(PipelineFeatures, MeansOfBatches) {
    for (const LossDenominator denominator :
         {LossDenominator::all_labels, LossDenominator::mean_of_micro_batches}) {
        test::MeshModel model =
            pipeline_model(denominator == LossDenominator::all_labels ? "grouped-query" : "mixtral");
        model.label_smoothing = denominator == LossDenominator::all_labels ? 0.2 : 0;
        model.compat.loss_denominator = denominator;
        expect_pipelines_as_one_process(model, [](test::MeshCase& mesh_case) { mesh_case.last_rows = 1; });
    }
}

/// With SGD: a sequence of one token has gradients that are only rounding errors, and AdamW moves weights as
/// far for those as for others.
TEST(PipelineFeatures, RowsOfEveryKind) {
    for (const char* name : {"grouped-query", "mixtral"})
        for (const test::RowKind kind :
             {test::RowKind::padded, test::RowKind::packed, test::RowKind::shorter})
            expect_pipelines_as_one_process(pipeline_model(name), [&](test::MeshCase& mesh_case) {
                mesh_case.optimizer = "sgd";
                mesh_case.row_kind = kind;
            });
}

/// The head's stage chooses its rows, and the others know nothing of them.
TEST(PipelineFeatures, FewTargets) {
    for (const char* name : {"tied", "mixtral"})
        expect_pipelines_as_one_process(pipeline_model(name), [](test::MeshCase& mesh_case) {
            mesh_case.rows = 64;
            mesh_case.row_kind = test::RowKind::answers;
        });
}

/// The plan has room for fewer micro-batches than it is made for, whatever their number.
TEST(PipelineFeatures, ShortLastWindows) {
    for (const int last : {1, 5})
        expect_pipelines_as_one_process(pipeline_model(last == 1 ? "mixtral" : "tied"),
                                        [&](test::MeshCase& mesh_case) {
                                            mesh_case.accumulation = 8;
                                            mesh_case.last_accumulation = last;
                                            mesh_case.last_rows = 3;
                                        });
    expect_pipelines_as_one_process(pipeline_model("qwen3"), [](test::MeshCase& mesh_case) {
        mesh_case.accumulation = 2;
        mesh_case.planned = 8;
    });
}

TEST(PipelineFeatures, WeightsGatheredWhenTheyAreNeeded) {
    for (const char* name : {"tied", "mixtral"})
        for (const Sharding sharding : {Sharding::zero2, Sharding::zero3})
            for (const int chunks : {1, 2}) {
                const bool recomputes = (sharding == Sharding::zero3) == (chunks == 1);
                expect_as_one_process(pipeline_model(name),
                                      {.shape = {.pp = 2, .data = 2},
                                       .sharding = sharding,
                                       .accumulation = 3,
                                       .recompute = recomputes ? Recompute::full : Recompute::none,
                                       .gathers_ahead = false,
                                       .chunks = chunks});
            }
}

/// Stages of one block and of several, in any order.
TEST(PipelineFeatures, StagesOfDifferentLengths) {
    for (const std::vector<int>& cuts : {std::vector{1, 2, 4}, std::vector{2, 3, 4}}) {
        expect_as_one_process(pipeline_model("mixtral"), {.shape = {.pp = 2, .data = 2},
                                                          .sharding = Sharding::zero3,
                                                          .accumulation = 3,
                                                          .chunks = 2,
                                                          .cuts = cuts});
        expect_as_one_process(
            pipeline_model("tied"),
            {.shape = {.pp = 4}, .accumulation = 5, .schedule = Kind::zero_bubble, .cuts = cuts});
    }
}

/// The first three blocks of the model, which are blocks of several stages.
TEST(PipelineFeatures, SomeBlocksRecomputed) {
    for (const Recompute recompute :
         {Recompute::selective_mlp, Recompute::selective_attention, Recompute::full})
        expect_pipelines_as_one_process(pipeline_model("mixtral"), [&](test::MeshCase& mesh_case) {
            mesh_case.recompute = recompute;
            mesh_case.recomputed_blocks = 3;
        });
}

/// With a residual stream, and messages, in bf16 and in fp32.
TEST(PipelineFeatures, Bfloat16) {
    for (const DType residual : {DType::bf16, DType::f32})
        for (const char* name : {"tied", "mixtral"})
            expect_pipelines_as_one_process(pipeline_model(name), [&](test::MeshCase& mesh_case) {
                mesh_case.precision = Precision::with_master(DType::bf16);
                mesh_case.precision.residual = residual;
            });
}

TEST(PipelineFeatures, AnOptimizerInHostMemory) {
    for (const char* optimizer : {"adamw_torch", "adafactor"})
        expect_pipelines_as_one_process(pipeline_model("tied"), [&](test::MeshCase& mesh_case) {
            mesh_case.optimizer = optimizer;
            mesh_case.offload_optimizer = true;
        });
}

/// Every other optimizer updates the two copies of a tied embedding alike.
TEST(PipelineFeatures, OtherOptimizers) {
    for (const char* optimizer : {"sgd", "adagrad", "rmsprop"})
        expect_as_one_process(pipeline_model("tied"), {.shape = {.pp = 2, .data = 2},
                                                       .sharding = Sharding::zero3,
                                                       .accumulation = 2,
                                                       .optimizer = optimizer});
}

/// Beyond three rounds a plan is not made for every number of micro-batches.
TEST(PipelineFeatures, MoreMicroBatchesThanThreeRounds) {
    for (const Kind kind : {Kind::one_forward_one_backward, Kind::zero_bubble})
        for (const int chunks : {1, 2})
            expect_as_one_process(
                pipeline_model("mixtral"),
                {.shape = {.pp = 2}, .accumulation = 13, .rows = 1, .schedule = kind, .chunks = chunks});
}

}  // namespace
}  // namespace drover
