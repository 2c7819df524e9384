// One rank of a training run over MPI; mpirun starts several. Trains every tiny model in the corner cases of
// the mesh and compares with one process. `test_parallel_mpi` alone does that; in `test_parallel_mpi die` and
// `test_parallel_mpi hang` rank 1 fails in the middle; with `die_stage` and `hang_stage` it is a stage of a
// pipeline. With DROVER_TEST_DEVICE=cuda it runs on GPUs, which exchange data through NCCL.

#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>

#include "comm/mpi/mpi_world.h"
#include "comm/nccl/nccl_communicators.h"
#include "model/block_shape.h"
#include "model/params.h"
#include "parallel/mesh_cases.h"
#include "support/test_backend.h"

namespace drover::test {
namespace {

/// Where a rank computes, and how it reaches the others.
class Site {
  public:
    explicit Site(World& world) : world_(world) {
        if (!tests_use_cuda()) return;
        test_gpu() = world.rank() % cuda_device_count();
        backend_ = make_test_backend();
        nccl_ = std::make_unique<NcclCommunicators>(world, load_nccl(*backend_));
    }

    World& world() const { return world_; }
    /// nullptr: a CPU backend for each run.
    Backend* backend() const { return backend_.get(); }
    Mesh mesh(const MeshShape& shape, int copies = 1) const {
        return nccl_ == nullptr ? Mesh(world_, shape, copies) : Mesh(world_, shape, copies, nccl_->maker());
    }
    // Ranks that share a GPU take turns of a few milliseconds for every collective, hence fewer steps and
    // models.
    int steps(int on_cpu) const { return backend_ == nullptr ? on_cpu : 2; }
    bool trains(const MeshModel& model) const {
        return backend_ == nullptr || model.name == "grouped-query" || model.name == "mixtral" ||
               model.name == "uneven";
    }

  private:
    World& world_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<NcclCommunicators> nccl_;
};

/// Data parallelism alone and tensor parallelism alone, with every sharding, and combinations of both.
std::vector<MeshCase> corner_cases(int ranks) {
    std::vector<MeshCase> corners;
    for (const MeshCase& mesh_case : mesh_cases(ranks)) {
        const bool only_data = mesh_case.shape.data == ranks, only_tensor = mesh_case.shape.tp == ranks;
        const bool both = mesh_case.shape.data > 1 && mesh_case.shape.tp > 1 && mesh_case.sequence_parallel;
        const bool hybrid = mesh_case.shape.dcn > 1 && mesh_case.shape.data > 1;
        const bool accumulates = mesh_case.accumulation > 1;
        const bool sharded_most = mesh_case.sharding == Sharding::zero3;
        if ((only_data && accumulates) || (only_tensor && sharded_most && accumulates) ||
            (both && sharded_most) || (hybrid && sharded_most && accumulates))
            corners.push_back(mesh_case);
    }
    return corners;
}

/// Pipelines alone, with every schedule, and with something inside each stage. With SGD: these models have
/// more layers, and AdamW moves a weight as far for a gradient that is only rounding error as for a large
/// one.
std::vector<MeshCase> pipeline_corners(int ranks) {
    using Kind = PipelineScheduleKind;
    std::vector<MeshCase> corners;
    const auto add = [&](const MeshShape& shape, Sharding sharding, Kind kind, int chunks) {
        corners.push_back({.shape = shape,
                           .sharding = sharding,
                           .sequence_parallel = shape.tp > 1,
                           .accumulation = 5,
                           .optimizer = "sgd",
                           .schedule = kind,
                           .chunks = chunks});
    };
    for (const Kind kind : {Kind::one_forward_one_backward, Kind::zero_bubble})
        for (const int chunks : {1, 2})
            if (ranks == 2 || chunks == 1) add({.pp = ranks}, Sharding::replicated, kind, chunks);
    if (ranks == 4) {
        add({.pp = 2, .tp = 2}, Sharding::replicated, Kind::one_forward_one_backward, 2);
        add({.pp = 2, .data = 2}, Sharding::zero1, Kind::zero_bubble, 2);
        add({.pp = 2, .data = 2}, Sharding::zero3, Kind::one_forward_one_backward, 2);
    }
    return corners;
}

/// A model, the cases in which it is trained, and for how long.
struct ModelCases {
    MeshModel model;
    std::vector<MeshCase> cases;
    int steps;
};

/// The corner cases in fp32, and for a Llama and a Mixtral also in bf16.
ModelCases in_fp32_and_bf16(const MeshModel& model, const std::vector<MeshCase>& corners, int steps) {
    std::vector<MeshCase> cases = corners;
    if (model.name == "grouped-query" || model.name == "mixtral")
        for (MeshCase mesh_case : corners) {
            mesh_case.precision = Precision::with_master(DType::bf16);
            cases.push_back(mesh_case);
        }
    return {model, cases, steps};
}

std::vector<ModelCases> all_cases(int ranks) {
    std::vector<ModelCases> all;
    for (const MeshModel& model : mesh_models())
        all.push_back(in_fp32_and_bf16(model, corner_cases(ranks), 10));
    for (const MeshModel& model : pipeline_models(5))
        all.push_back(in_fp32_and_bf16(model, pipeline_corners(ranks), 4));
    return all;
}

int check_corners(const Site& site) {
    const World& world = site.world();
    int complaints = 0, cases = 0;
    for (const auto& [model, model_cases, cpu_steps] : all_cases(world.size())) {
        if (!site.trains(model)) continue;
        const int steps = site.steps(cpu_steps);
        std::map<std::pair<int, DType>, MeshRun> runs;  // on one process, by accumulation and precision
        for (const MeshCase& mesh_case : model_cases) {
            const auto [alone, is_new] =
                runs.try_emplace({mesh_case.accumulation, mesh_case.precision.parameters});
            if (is_new)
                alone->second = train_on_mesh(model, mesh_case.alone(), Mesh(), steps, site.backend());
            const Mesh mesh = site.mesh(mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
            if (world.rank() == 0 && cases == 0)
                std::fputs(
                    placement_table(make_param_spec(model.config), mesh, mesh_case.sharding, DType::f32)
                        .c_str(),
                    stdout);
            const MeshRun run = train_on_mesh(model, mesh_case, mesh, steps, site.backend());
            const MeshDifference difference = compare(run, alone->second);
            const std::string complaint = difference.complaint(mesh_case.precision);
            if (!complaint.empty()) {
                std::fprintf(stderr, "rank %d: %s, %s: %s\n", world.rank(), model.name.c_str(),
                             mesh_case.text().c_str(), complaint.c_str());
                ++complaints;
            }
            if (world.rank() == 0)
                std::printf("%s, %s: %s\n", model.name.c_str(), mesh_case.text().c_str(),
                            difference.text().c_str());
            std::fflush(stdout);
            ++cases;
        }
    }
    if (world.rank() == 0)
        std::printf("%d ranks: %d cases, %d complaints\n", world.size(), cases, complaints);
    return complaints;
}

/// Trains forever on all ranks except rank 1, which fails after one run: on a data axis, or as a stage.
int fail_in_the_middle(const Site& site, bool hang, bool pipeline) {
    const MeshModel model = pipeline ? pipeline_models(5)[0] : mesh_models()[0];
    const int ranks = site.world().size();
    const MeshCase mesh_case = pipeline ? MeshCase{.shape = {.pp = ranks}, .accumulation = 4}
                                        : MeshCase{.shape = {.data = ranks}, .sharding = Sharding::zero3};
    const Mesh mesh = site.mesh(mesh_case.shape);
    for (;;) {
        train_on_mesh(model, mesh_case, mesh, 1, site.backend());
        if (site.world().rank() != 1) continue;
        if (hang) pause();
        kill(getpid(), SIGKILL);
    }
}

}  // namespace
}  // namespace drover::test

int main(int argc, char** argv) {
    omp_set_num_threads(1);
    const std::string_view mode = argc > 1 ? argv[1] : "";
    const bool hangs = mode.starts_with("hang");
    if (drover::test::tests_use_cuda() && drover::cuda_device_count() == 0) {
        std::puts("test_parallel_mpi: skipped, because the driver shows no GPU to this process.");
        return 0;
    }
    try {
        // Ranks that share a GPU need some seconds to start.
        const int patience = drover::test::tests_use_cuda() ? 20 : 2;
        const auto world = drover::make_mpi_world({.deadline = std::chrono::seconds(hangs ? patience : 120)});
        int failures = 0;
        drover::run_rank(*world, [&](drover::World& rank) {
            const drover::test::Site site(rank);
            failures = mode.empty() ? drover::test::check_corners(site)
                                    : drover::test::fail_in_the_middle(site, hangs, mode.ends_with("stage"));
        });
        return failures == 0 ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "test_parallel_mpi: %s\n", error.what());
        return 1;
    }
}
