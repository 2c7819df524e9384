// One rank of a world whose tensors are on GPUs; mpirun starts several: test_comm_nccl [what to do]. Ranks
// may share a GPU.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>

#include "comm/collective_checks.h"
#include "comm/mpi/mpi_world.h"
#include "comm/nccl/nccl_communicators.h"
#include "comm/times_check.h"

namespace drover {
namespace {

using namespace std::chrono_literals;

/// One rank: its world, its GPU and the factory of its communicators.
struct Rank {
    World& world;
    Backend& backend;
    NcclCommunicators& communicators;

    Stream stream() const { return backend.main_stream(); }
    std::unique_ptr<Communicator> everyone() const {
        return communicators.make("data", test::all_ranks(world));
    }
    /// The host waits for the GPU, like an engine that reads a loss.
    void wait_for(Communicator& axis) const {
        backend.synchronize(stream());
        axis.check_unbroken();
    }
    void pass_barrier(Communicator& axis) const {
        axis.barrier(stream());
        wait_for(axis);
    }
};

struct Scenario {
    WorldOptions options;
    std::function<void(const Rank&)> work;
};

void check_all(const Rank& rank) {
    const test::Carrier at(rank.world, rank.communicators.maker(), &rank.backend, false);
    const auto step = [&](const char* name, const std::function<void()>& check) {
        check();
        if (rank.world.rank() == 0) std::printf("%s: passed\n", name);
        std::fflush(stdout);
    };
    step("collectives", [&] { test::check_collectives(at); });
    step("overlap", [&] { test::check_overlap(at); });
    step("groups", [&] { test::check_groups(at); });
    step("messages", [&] { test::check_messages(at); });
    if (rank.world.options().gpu_times) step("times", [&] { test::check_times(at, rank.communicators); });
    for (const int columns : {1, 2})
        if (rank.world.size() % columns == 0) step("mesh", [&] { test::check_mesh(at, columns); });
}

/// A single rank whose axes copy.
void check_alone(const Rank& rank) {
    const auto make = [&](std::string axis, std::vector<int> ranks) {
        return rank.communicators.make(std::move(axis), std::move(ranks), SingleRankAxis::copies);
    };
    const test::Carrier at(rank.world, make, &rank.backend, false);
    test::check_collectives(at);
    test::check_groups(at);
    test::check_times(at, rank.communicators);
}

/// All ranks pass a barrier; then rank 1 does something different while the others' GPUs wait at the next
/// one.
Scenario odd_one(WorldOptions options, std::function<void(const Rank&, Communicator&)> odd) {
    return {options, [odd](const Rank& rank) {
                const auto axis = rank.everyone();
                rank.pass_barrier(*axis);
                if (rank.world.rank() == 1) odd(rank, *axis);
                rank.pass_barrier(*axis);
            }};
}

const std::map<std::string, Scenario> scenarios = {
    {"checks", {{.deadline = 120s, .gpu_times = true}, check_all}},
    {"alone", {{.deadline = 60s, .gpu_times = true}, check_alone}},
    {"debug_checks", {{.deadline = 120s, .comm_debug = true}, check_all}},
    // Long enough for ranks that share a GPU to start.
    {"hang", odd_one({.deadline = 15s}, [](const Rank&, Communicator&) { ::pause(); })},
    {"throw",
     odd_one({}, [](const Rank&, Communicator&) { throw Error("The disk is full.", "Make room."); })},
    {"throw_under_way", odd_one({},
                                [](const Rank& rank, Communicator& axis) {
                                    const MemoryBlock memory = rank.backend.allocate(400000);
                                    const Tensor x(memory.get(), DType::f32, {100000}, Device::cuda);
                                    const Pending sum =
                                        axis.start_all_reduce(rank.stream(), x, Reduction::sum);
                                    const Pending sent = axis.start_send(rank.stream(), x, 0);
                                    throw Error("The disk is full.", "Make room.");
                                })},
    {"kill", odd_one({}, [](const Rank&, Communicator&) { ::kill(::getpid(), SIGKILL); })},
    {"other_call", odd_one({.comm_debug = true},
                           [](const Rank& rank, Communicator& axis) {
                               const MemoryBlock memory = rank.backend.allocate(32);
                               axis.all_reduce(rank.stream(),
                                               Tensor(memory.get(), DType::f32, {8}, Device::cuda),
                                               Reduction::sum);
                           })},
};

}  // namespace
}  // namespace drover

int main(int argc, char** argv) {
    const auto scenario = drover::scenarios.find(argc > 1 ? argv[1] : "checks");
    if (scenario == drover::scenarios.end()) {
        std::fprintf(stderr, "test_comm_nccl: unknown scenario\n");
        return 2;
    }
    if (drover::cuda_device_count() == 0) {
        std::puts("test_comm_nccl: skipped, because the driver shows no GPU to this process.");
        return 0;
    }
    try {
        const auto world = drover::make_mpi_world(scenario->second.options);
        drover::run_rank(*world, [&](drover::World& here) {
            const auto backend = drover::make_cuda_backend(here.rank() % drover::cuda_device_count());
            drover::NcclCommunicators communicators(here, drover::load_nccl(*backend));
            scenario->second.work({here, *backend, communicators});
        });
        if (world->rank() == 0) std::printf("%d ranks: all is well\n", world->size());
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "test_comm_nccl: %s\n", error.what());
        return 1;
    }
}
