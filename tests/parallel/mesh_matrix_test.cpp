#include "parallel/mesh_matrix.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "parallel/threads_run.h"

namespace drover {
namespace {

/// The run that a case is compared with.
using Compared = std::function<test::MeshCase(const test::MeshCase&)>;

/// Trains `steps` updates in each of the cases, and in what each is compared with.
void expect_equal_runs(const std::vector<test::MatrixCase>& cases, const Compared& compared, int steps) {
    omp_set_num_threads(1);
    std::map<std::string, test::MeshRun> runs;  // of what the cases are compared with
    for (const auto& [model, mesh_case, choices] : cases) {
        const test::MeshCase other = compared(mesh_case);
        const auto [run, is_new] = runs.try_emplace(model.name + ", " + other.text());
        if (is_new) run->second = test::run_on_threads(model, other, steps);
        EXPECT_EQ(test::complaints_on_threads(model, mesh_case, run->second, steps), std::set<std::string>{})
            << model.name << ", " << mesh_case.text();
    }
    std::printf("%zu cases\n", cases.size());
}

TEST(MeshMatrix, TrainsAsOneProcessDoes) {
    expect_equal_runs(
        test::chosen_cases(test::full_matrix()),
        [](const test::MeshCase& mesh_case) { return mesh_case.alone(); }, 10);
}

/// With this many layers, what tensor and data parallelism round differently from one process is already
/// more than a mesh may differ, because AdamW and Adafactor make it visible. A pipeline adds nothing to that.
TEST(PipelineMatrix, TrainsAsTheMeshWithoutAPipelineDoes) {
    const auto without_pipeline = [](const test::MeshCase& mesh_case) {
        test::MeshCase same = mesh_case;
        same.shape.pp = same.chunks = 1;
        same.schedule = PipelineScheduleKind::one_forward_one_backward;
        same.recompute = Recompute::none;
        return same;
    };
    expect_equal_runs(test::chosen_cases(test::full_pipeline_matrix()), without_pipeline, 4);
}

/// The few cases lack triples of choices compared with the full matrix, but no pairs.
TEST(MeshMatrix, FewCasesHaveAllPairs) {
    const auto pairs_of = [](const std::vector<test::MatrixCase>& cases) {
        std::set<std::tuple<std::size_t, int, std::size_t, int>> pairs;
        for (const test::MatrixCase& one : cases)
            for (std::size_t i = 0; i < one.choices.size(); ++i)
                for (std::size_t j = 0; j < one.choices.size(); ++j)
                    pairs.emplace(i, one.choices[i], j, one.choices[j]);
        return pairs;
    };
    for (const auto& all : {test::full_matrix(), test::full_pipeline_matrix()}) {
        const auto few = test::covering_pairs(all);
        EXPECT_EQ(pairs_of(few), pairs_of(all));
        EXPECT_LT(few.size() * 20, all.size());
    }
}

}  // namespace
}  // namespace drover
