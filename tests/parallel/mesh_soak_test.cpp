#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>
#include <set>

#include "parallel/mesh_matrix.h"
#include "parallel/rank_run.h"
#include "support/golden.h"
#include "support/soak.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t soak_steps = 8;

class SoakDraw {
  public:
    explicit SoakDraw(std::uint32_t seed) : generator_(seed) {
        model_ = one_of(test::mesh_models());
        work_ = {.accumulation = below(2) + 1,
                 .optimizer = one_of<std::string>({"adamw_torch", "adafactor"}),
                 .rows = 24};
    }

    const test::MeshModel& model() const { return model_; }
    /// The same work on a newly drawn mesh.
    test::MeshCase another_mesh() {
        test::MeshCase drawn = work_;
        std::optional<MeshShape> shape;
        test::MeshMode mode;
        do {
            mode = one_of(test::mesh_modes());
            shape = mode.shape(one_of<int>({1, 2, 3, 4, 6, 8}));
        } while (!shape);
        drawn.shape = *shape;
        drawn.sharding = mode.sharding;
        drawn.sequence_parallel = mode.sequence_parallel;
        drawn.recompute = one_of<Recompute>(
            {Recompute::none, Recompute::selective, Recompute::selective_mlp, Recompute::full});
        return drawn;
    }
    test::MeshCase alone() const { return work_.alone(); }
    /// A step that is saved and is not the last.
    std::int64_t saved_step_after(std::int64_t step) {
        return step + 2 * (1 + below(static_cast<int>((soak_steps - step) / 2) - 1));
    }
    int below(int end) { return static_cast<int>(generator_() % static_cast<std::uint32_t>(end)); }

  private:
    template <class T>
    T one_of(const std::vector<T>& choices) {
        return choices[generator_() % choices.size()];
    }

    std::mt19937 generator_;
    test::MeshModel model_;
    test::MeshCase work_;
};

Json records_of(const test::MeshModel& model, const test::MeshCase& mesh_case, const fs::path& output,
                const std::optional<fs::path>& checkpoint) {
    std::mutex guard;
    std::set<std::string> on_ranks;
    Json records;
    test::on_mesh(model, mesh_case, output, soak_steps, Precision::fp32(), [&](test::RankRun& run) {
        const Json own = run.train(checkpoint);
        const std::lock_guard lock(guard);
        on_ranks.insert(own.dump());
        records = own;
    });
    EXPECT_EQ(on_ranks.size(), 1u) << "the ranks log different things";
    return records;
}

void expect_same_curve(const Json& actual, const Json& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        for (const auto& [key, value] : expected[i].items()) {
            ASSERT_TRUE(actual[i].contains(key)) << key << " of record " << i;
            const double wanted = value;
            // Totals of a resumed run count from where it resumed.
            if (key == "train_loss") continue;
            EXPECT_NEAR(actual[i].at(key).get<double>(), wanted, 1e-4 * std::abs(wanted))
                << key << " of record " << i;
        }
}

/// Trains on one mesh, resumes from one of its checkpoints on another, and from there on a third.
void train_on_three_meshes(std::uint32_t seed) {
    SoakDraw draw(seed);
    const test::TemporaryFolder folder;
    const Json alone = records_of(draw.model(), draw.alone(), folder / "alone", std::nullopt);
    std::optional<fs::path> checkpoint;
    std::string way = draw.model().name;
    for (std::int64_t leg = 0, step = 0; leg < 3; ++leg) {
        const test::MeshCase mesh_case = draw.another_mesh();
        way += fmt::format("\n  from step {}: {}", step, mesh_case.text());
        SCOPED_TRACE(way);
        const fs::path output = folder / fmt::format("leg-{}", leg);
        expect_same_curve(records_of(draw.model(), mesh_case, output, checkpoint), alone);
        if (soak_steps - step < 4) break;  // no later checkpoint except the last
        step = draw.saved_step_after(step);
        checkpoint = output / fmt::format("checkpoint-{}", step);
    }
    if (std::getenv("DROVER_SOAK_SECONDS") != nullptr) fmt::print("seed {}: {}\n", seed, way);
}

/// Randomly distributed runs, redistributed when resumed, log the same as one process.
TEST(MeshSoak, AnyMeshGoesOnFromAnyOther) {
    test::soak("test_parallel", "MeshSoak.AnyMeshGoesOnFromAnyOther", train_on_three_meshes);
}

}  // namespace
}  // namespace drover
