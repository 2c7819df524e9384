#include "parallel/mesh_matrix.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "parallel/threads_run.h"

namespace drover {
namespace {

constexpr int steps = 10;

/// DROVER_MESH_MATRIX=1 selects the full matrix, a larger number N every Nth of its cases. Without it, all
/// pairs of choices.
std::vector<test::MatrixCase> chosen_cases() {
    const std::vector<test::MatrixCase> all = test::full_matrix();
    const char* every = std::getenv("DROVER_MESH_MATRIX");
    if (every == nullptr) return test::covering_pairs(all);
    const auto stride = static_cast<std::size_t>(std::max(1L, std::strtol(every, nullptr, 10)));
    std::vector<test::MatrixCase> some;
    for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
}

TEST(MeshMatrix, TrainsAsOneProcessDoes) {
    omp_set_num_threads(1);
    std::map<std::tuple<std::string, std::string, int, std::int64_t>, test::MeshRun> runs;  // on one process
    const auto cases = chosen_cases();
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
    const auto all = test::full_matrix();
    const auto few = test::covering_pairs(all);
    EXPECT_EQ(pairs_of(few), pairs_of(all));
    EXPECT_LT(few.size() * 20, all.size());
}

}  // namespace
}  // namespace drover
