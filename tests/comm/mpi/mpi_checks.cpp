// One rank of an MPI world, for mpi_test.cpp: mpi_checks <what to do>.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>

#include "comm/collective_checks.h"
#include "comm/mpi/mpi_world.h"

namespace drover {
namespace {

using namespace std::chrono_literals;

struct Scenario {
    WorldOptions options;
    std::function<void(World&)> work;
};

std::unique_ptr<Communicator> everyone(World& world) {
    return world.make_communicator("data", test::all_ranks(world));
}

void check_all(World& world) {
    test::check_collectives(world);
    test::check_overlap(world);
    test::check_groups(world);
    test::check_messages(world);
    test::check_notes(world);
    for (const int columns : {1, 2})
        if (world.size() % columns == 0) test::check_mesh(world, columns);
}

/// All ranks pass a barrier; then rank 1 does something different while the others wait at the next one.
Scenario odd_one(WorldOptions options, std::function<void(Communicator&)> odd) {
    return {options, [odd](World& world) {
                const auto axis = everyone(world);
                axis->barrier({});
                if (world.rank() == 1) odd(*axis);
                axis->barrier({});
            }};
}

const std::map<std::string, Scenario> scenarios = {
    {"checks", {{.deadline = 60s, .scratch_bytes = 1}, check_all}},
    {"debug_checks", {{.deadline = 60s, .comm_debug = true, .scratch_bytes = 1}, check_all}},
    {"hang", odd_one({.deadline = 1s}, [](Communicator&) { ::pause(); })},
    {"throw", odd_one({}, [](Communicator&) { throw Error("The disk is full.", "Make room."); })},
    {"throw_under_way", odd_one({},
                                [](Communicator& axis) {
                                    std::vector<float> x(100000);
                                    const Pending sent =
                                        axis.start_send({}, Tensor::of(x.data(), {100000}), 0);
                                    throw Error("The disk is full.", "Make room.");
                                })},
    {"exit", odd_one({}, [](Communicator&) { ::_exit(3); })},
    {"kill", odd_one({}, [](Communicator&) { ::kill(::getpid(), SIGKILL); })},
    {"other_size", odd_one({},
                           [](Communicator& axis) {
                               std::vector<float> x(8);
                               axis.all_reduce({}, Tensor::of(x.data(), {8}), Reduction::sum);
                           })},
    {"other_call", odd_one({.comm_debug = true},
                           [](Communicator& axis) {
                               std::vector<float> x(8);
                               axis.all_reduce({}, Tensor::of(x.data(), {8}), Reduction::sum);
                           })},
    {"leave",
     {{.deadline = 1s},
      [](World& world) {
          const auto axis = everyone(world);
          if (world.rank() != 1) axis->barrier({});
      }}},
    {"linger",
     {{.deadline = 500ms},
      [](World& world) {
          if (world.rank() != 1) ::pause();
      }}},
    {"twice", {{}, [](World&) { (void)make_mpi_world(); }}},
};

}  // namespace
}  // namespace drover

int main(int argc, char** argv) {
    const auto scenario = drover::scenarios.find(argc == 2 ? argv[1] : "");
    if (scenario == drover::scenarios.end()) {
        std::fprintf(stderr, "mpi_checks: unknown scenario\n");
        return 2;
    }
    try {
        const auto world = drover::make_mpi_world(scenario->second.options);
        drover::run_rank(*world, scenario->second.work);
        if (world->rank() == 0) std::printf("%d ranks: all is well\n", world->size());
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_checks: %s\n", error.what());
        return 1;
    }
}
