// One rank of a training run over MPI; mpirun starts several. Trains every tiny model in the corner cases of
// the mesh and compares with one process. `mpi_mesh` alone does that; `mpi_mesh die` and `mpi_mesh hang` let
// rank 1 fail in the middle.

#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "comm/mpi/mpi_world.h"
#include "model/block_shape.h"
#include "model/params.h"
#include "parallel/mesh_cases.h"

namespace drover::test {
namespace {

constexpr int steps = 10;

/// Data parallelism alone and tensor parallelism alone, with every sharding, and what lies between them.
std::vector<MeshCase> corner_cases(int ranks) {
    std::vector<MeshCase> corners;
    for (const MeshCase& mesh_case : mesh_cases(ranks)) {
        const bool only_data = mesh_case.shape.data == ranks, only_tensor = mesh_case.shape.tp == ranks;
        const bool both = mesh_case.shape.data > 1 && mesh_case.shape.tp > 1 && mesh_case.sequence_parallel;
        const bool accumulates = mesh_case.accumulation > 1;
        const bool sharded_most = mesh_case.sharding == Sharding::zero3;
        if ((only_data && accumulates) || (only_tensor && sharded_most && accumulates) ||
            (both && sharded_most))
            corners.push_back(mesh_case);
    }
    return corners;
}

int check_corners(World& world) {
    int complaints = 0, cases = 0;
    for (const MeshModel& model : mesh_models()) {
        std::map<int, MeshRun> alone;  // by accumulation
        for (const MeshCase& mesh_case : corner_cases(world.size())) {
            if (!alone.contains(mesh_case.accumulation))
                alone[mesh_case.accumulation] =
                    train_on_mesh(model, {.accumulation = mesh_case.accumulation}, Mesh(), steps);
            const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
            if (world.rank() == 0 && cases == 0)
                std::fputs(
                    placement_table(make_param_spec(model.config), mesh, mesh_case.sharding, DType::f32)
                        .c_str(),
                    stdout);
            const MeshRun run = train_on_mesh(model, mesh_case, mesh, steps);
            const std::string complaint = compare(run, alone[mesh_case.accumulation]).complaint();
            if (!complaint.empty()) {
                std::fprintf(stderr, "rank %d: %s, %s: %s\n", world.rank(), model.name.c_str(),
                             mesh_case.text().c_str(), complaint.c_str());
                ++complaints;
            }
            ++cases;
        }
    }
    if (world.rank() == 0)
        std::printf("%d ranks: %d cases, %d complaints\n", world.size(), cases, complaints);
    return complaints;
}

/// Trains for ever on all ranks but rank 1, which goes wrong after one run.
int fail_in_the_middle(World& world, bool hang) {
    const MeshModel model = mesh_models()[0];
    const Mesh mesh(world, {.data = world.size()});
    for (;;) {
        train_on_mesh(model, {{.data = world.size()}, Sharding::zero3}, mesh, 1);
        if (world.rank() != 1) continue;
        if (hang) pause();
        kill(getpid(), SIGKILL);
    }
}

}  // namespace
}  // namespace drover::test

int main(int argc, char** argv) {
    omp_set_num_threads(1);
    const char* mode = argc > 1 ? argv[1] : "";
    try {
        const auto world = drover::make_mpi_world(
            {.deadline = std::chrono::seconds(std::strcmp(mode, "hang") == 0 ? 2 : 60)});
        int failures = 0;
        drover::run_rank(*world, [&](drover::World& rank) {
            failures = *mode == 0 ? drover::test::check_corners(rank)
                                  : drover::test::fail_in_the_middle(rank, std::strcmp(mode, "hang") == 0);
        });
        return failures == 0 ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_mesh: %s\n", error.what());
        return 1;
    }
}
