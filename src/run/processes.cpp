#include "run/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "comm/mpi/mpi_world.h"
#include "run/messages.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

void check_world(const World& world, const LaunchEnvironment& launch) {
    if (world.size() == launch.processes) return;
    if (launch.rank != 0) throw QuietEnd(1);
    throw Error(
        fmt::format("{} says that {} processes were started, but MPI sees {}.", launch.told_by,
                    launch.processes, world.size()),
        fmt::format(
            "Start them with drover launch --nproc_per_node {}, with the mpirun of the MPI library that "
            "this program uses (Open MPI), or with srun --mpi=pmix.",
            launch.processes));
}

}  // namespace

QuietEnd show_failure(int rank) {
    try {
        throw;
    } catch (const PeerFailure&) {
        return QuietEnd(1);
    } catch (const FailureOfRank& failure) {
        if (failure.shown_here()) show_end(failure);
        return QuietEnd(failure.exit_code());
    } catch (const AgreedError& failure) {
        if (rank == 0) show_end(failure);
        return QuietEnd(failure.exit_code());
    } catch (...) {
        const std::string name = fmt::format("Rank {}", rank);
        const FailureOfRank own = own_failure(std::current_exception(), "");
        const bool named = own.cause().starts_with(name);  // as in errors of collectives
        show_end(named ? own : own_failure(std::current_exception(), name + ": "));
        return QuietEnd(own.exit_code());
    }
}

void let_first_report(const LaunchEnvironment& launch) {
    if (launch.rank != 0) std::this_thread::sleep_for(std::chrono::seconds(3));
}

std::unique_ptr<World> begin_world(const LaunchEnvironment& launch, const WorldOptions& waits) {
    std::unique_ptr<World> world;
    try {
        world = make_mpi_world(waits);
    } catch (const Error&) {
        let_first_report(launch);
        throw;
    }
    check_world(*world, launch);
    return world;
}

Processes find_processes(World& world) {
    Processes processes{.world = &world, .group = ProcessGroup(world)};
    processes.machine = find_machine_place(processes.group);
    return processes;
}

void run_in_processes(const LaunchEnvironment& launch, const WorldOptions& waits,
                      const std::function<void(Processes&)>& work) {
    if (!launch.has_others()) {
        Processes alone;
        return work(alone);
    }
    const std::unique_ptr<World> world = begin_world(launch, waits);
    // A launcher ends all processes as soon as one has failed, so errors are shown before the other ranks
    // learn of them.
    std::optional<QuietEnd> end;
    run_rank(*world, [&](World& rank) {
        try {
            Processes processes = find_processes(rank);
            work(processes);
        } catch (const AgreedError&) {
            end = show_failure(rank.rank());  // all ranks finish the world in an orderly way
        } catch (...) {
            throw show_failure(rank.rank());
        }
    });
    if (end) throw QuietEnd(*end);
}

WorldOptions world_options(const RunSettings& settings, const LaunchEnvironment& launch) {
    using std::chrono::milliseconds;
    // Ranks that wait for the same rank time out one after the other: the first one informs the others.
    const milliseconds later = milliseconds(1500) * std::min(launch.rank, 10);
    const DeviceSettings& device = settings.device;
    return {.deadline = device.timeout + later,
            .comm_debug = device.compare_collectives,
            .gpu_times = device.time_collectives || settings.profile.on};
}

void check_started_alike(const Processes& processes, const RunSettings& settings) {
    NamedTexts alike{
        {"the version of drover", DROVER_VERSION},
        {"the batch", settings.mesh.batch_is_global ? "of all replicas together" : "of each replica"}};
    alike.insert(alike.end(), settings.record.alike.begin(), settings.record.alike.end());
    check_ranks_agree(processes.group, alike);
}

}  // namespace drover
