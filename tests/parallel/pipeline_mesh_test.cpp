#include <gtest/gtest.h>
#include <omp.h>

#include "parallel/threads_run.h"

namespace drover {
namespace {

constexpr int pipeline_steps = 4;
using Kind = PipelineScheduleKind;

void expect_pipeline_as_one_process(const test::MeshModel& model, const test::MeshCase& mesh_case) {
    omp_set_num_threads(1);
    const test::MeshRun alone = test::train_on_mesh(model, mesh_case.alone(), Mesh(), pipeline_steps);
    EXPECT_EQ(test::complaints_on_threads(model, mesh_case, alone, pipeline_steps), std::set<std::string>{})
        << model.name << ", " << mesh_case.text();
}

TEST(PipelineMesh, TrainsAsOneProcessDoes) {
    for (const test::MeshModel& model : test::pipeline_models(9))
        for (const int pp : {2, 4})
            for (const int chunks : {1, 2})
                for (const Kind kind : {Kind::one_forward_one_backward, Kind::zero_bubble})
                    for (const int accumulation : {1, 3, 8})
                        expect_pipeline_as_one_process(model, {.shape = {.pp = pp},
                                                               .accumulation = accumulation,
                                                               .schedule = kind,
                                                               .chunks = chunks});
}

}  // namespace
}  // namespace drover
