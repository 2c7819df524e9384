#include <gtest/gtest.h>
#include <omp.h>

#include "parallel/threads_run.h"

// A pipeline does the same operations in another order, and adds up gradients in the same one.

namespace drover {
namespace {

constexpr int bits_steps = 3;
using Kind = PipelineScheduleKind;

/// Where weight gradients wait, they are added up in the same order as where they do not.
TEST(PipelineBits, ZeroBubbleHasThoseOfOneForwardOneBackward) {
    const std::vector<test::MeshCase> cases{
        {.shape = {.pp = 2}, .accumulation = 5},
        {.shape = {.pp = 4}, .accumulation = 8},
        {.shape = {.pp = 2}, .accumulation = 6, .optimizer = "adafactor", .chunks = 2},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 3},
        {.shape = {.pp = 2, .data = 2},
         .sharding = Sharding::zero1,
         .accumulation = 4,
         .last_rows = 3,
         .chunks = 2},
    };
    for (const test::MeshModel& model : test::pipeline_models(5))
        for (test::MeshCase mesh_case : cases) {
            const test::MeshRun expected = test::run_on_threads(model, mesh_case, bits_steps);
            mesh_case.schedule = Kind::zero_bubble;
            test::expect_equal_bits(test::run_on_threads(model, mesh_case, bits_steps), expected,
                                    model.name + ", " + mesh_case.text());
        }
}

/// Stages compute what the same ranks without a pipeline do, and add it up in the same order. All but a tied
/// embedding, whose gradients come from two stages.
TEST(PipelineBits, AreThoseOfTheMeshWithoutAPipeline) {
    const std::vector<test::MeshCase> cases{
        {.shape = {.pp = 2}},
        {.shape = {.pp = 4}, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2}, .recompute = Recompute::full, .chunks = 2},
        {.shape = {.pp = 2}, .schedule = Kind::zero_bubble, .chunks = 2},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .chunks = 2},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero1, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero3, .last_rows = 3, .chunks = 2},
    };
    Precision rounded = Precision::pure_bf16(), precise_stream = Precision::with_master(DType::bf16);
    rounded.stochastic_rounding = true;
    precise_stream.residual = DType::f32;
    for (const test::MeshModel& model : test::pipeline_models(5)) {
        if (model.config.tie_word_embeddings) continue;
        const std::vector<Precision> precisions =
            model.config.has_experts() ? std::vector{Precision::fp32(), Precision::with_master(DType::bf16)}
                                       : std::vector{rounded, precise_stream};
        for (const Precision& precision : precisions)
            for (test::MeshCase mesh_case : cases) {
                mesh_case.accumulation = 3;
                mesh_case.precision = precision;
                test::MeshCase without = mesh_case;
                without.shape.pp = without.chunks = 1;
                without.schedule = Kind::one_forward_one_backward;
                without.recompute = Recompute::none;
                test::expect_equal_bits(test::run_on_threads(model, mesh_case, bits_steps),
                                        test::run_on_threads(model, without, bits_steps),
                                        model.name + ", " + mesh_case.text());
            }
    }
}

}  // namespace
}  // namespace drover
