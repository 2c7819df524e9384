#include "parallel/mesh_matrix.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <map>
#include <set>
#include <tuple>

#include "parallel/threads_run.h"

namespace drover {
namespace {

/// Trains `steps` updates in each of the cases and on one process, and compares.
void expect_matrix_as_one_process(const std::vector<test::MatrixCase>& cases, int steps) {
    omp_set_num_threads(1);
    std::map<std::tuple<std::string, std::string, int, std::int64_t>, test::MeshRun> runs;  // on one process
    for (const auto& [model, mesh_case, choices] : cases) {
        const auto [alone, is_new] =
            runs.try_emplace({model.name, mesh_case.optimizer, mesh_case.accumulation, mesh_case.last_rows});
        if (is_new) alone->second = test::train_on_mesh(model, mesh_case.alone(), Mesh(), steps);
        EXPECT_EQ(test::complaints_on_threads(model, mesh_case, alone->second, steps),
                  std::set<std::string>{})
            << model.name << ", " << mesh_case.text();
    }
    std::printf("%zu cases\n", cases.size());
}

TEST(MeshMatrix, TrainsAsOneProcessDoes) {
    expect_matrix_as_one_process(test::chosen_cases(test::full_matrix()), 10);
}

TEST(PipelineMatrix, TrainsAsOneProcessDoes) {
    expect_matrix_as_one_process(test::chosen_cases(test::full_pipeline_matrix()), 4);
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
