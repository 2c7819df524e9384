#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

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
        // All models have two layers or more.
        if (shape->ranks() <= 4) drawn.shape.pp = one_of<int>({1, 2});
        drawn.schedule = one_of<PipelineScheduleKind>(
            {PipelineScheduleKind::one_forward_one_backward, PipelineScheduleKind::zero_bubble});
        drawn.sharding = mode.sharding;
        drawn.sequence_parallel = mode.sequence_parallel;
        drawn.recompute = one_of<Recompute>({Recompute::none, Recompute::selective, Recompute::selective_mlp,
                                             Recompute::selective_attention, Recompute::full});
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

/// Trains on one mesh, resumes from one of its checkpoints on another, and from there on a third.
void train_on_three_meshes(std::uint32_t seed) {
    SoakDraw draw(seed);
    const test::TemporaryFolder folder;
    const Json alone = test::records_of(draw.model(), draw.alone(), folder / "alone", soak_steps);
    std::optional<fs::path> checkpoint;
    std::string way = draw.model().name;
    for (std::int64_t leg = 0, step = 0; leg < 3; ++leg) {
        const test::MeshCase mesh_case = draw.another_mesh();
        way += fmt::format("\n  from step {}: {}", step, mesh_case.text());
        SCOPED_TRACE(way);
        const fs::path output = folder / fmt::format("leg-{}", leg);
        test::expect_same_curve(test::records_of(draw.model(), mesh_case, output, soak_steps, checkpoint),
                                alone);
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
