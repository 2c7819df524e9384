#include "app/run_clm_processes.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "comm/mpi/mpi_world.h"
#include "core/json.h"

namespace drover {
namespace {

/// Arguments that may differ from process to process: they say where things are or what is said, not what is
/// computed. (Models and tokenizers are compared by content.)
constexpr std::array own_arguments{
    "cache_dir",         "config_name",        "disable_tqdm",   "local_rank",   "log_level",
    "log_level_replica", "model_name_or_path", "profile_logdir", "rank_log_dir", "tokenizer_name",
    "threads",           "tuning_cache",
};

/// Shows a failure on one rank and ends the others silently.
[[noreturn]] void end_together(const AgreedError& failure, int rank) {
    const auto* of_rank = dynamic_cast<const FailureOfRank*>(&failure);
    const bool shown_here = of_rank != nullptr ? of_rank->shown_here() : rank == 0;
    if (shown_here) throw FailureOfRank(failure.cause(), failure.remedy(), failure.exit_code(), true);
    throw QuietEnd(failure.exit_code());
}

void check_world(const World& world, const LaunchEnvironment& launch) {
    if (world.size() == launch.processes) return;
    if (launch.rank != 0) throw QuietEnd(1);
    throw Error(
        fmt::format("{} says that {} processes were started, but MPI sees {}.", launch.told_by,
                    launch.processes, world.size()),
        "Start them with the mpirun of the MPI library that this program uses (Open MPI), or with srun "
        "--mpi=pmix.");
}

}  // namespace

void run_in_processes(const LaunchEnvironment& launch, const WorldOptions& waits,
                      const std::function<void(RunProcesses&)>& work) {
    if (!launch.has_others()) {
        RunProcesses alone;
        return work(alone);
    }
    const std::unique_ptr<World> world = make_mpi_world(waits);
    check_world(*world, launch);
    std::exception_ptr agreed;
    try {
        run_rank(*world, [&](World& rank) {
            try {
                RunProcesses processes{.world = &rank, .ranks = RunRanks(rank)};
                processes.machine = find_machine_place(processes.ranks);
                work(processes);
            } catch (const AgreedError&) {
                agreed = std::current_exception();  // all ranks come to the end of the world in order
            }
        });
        if (agreed) std::rethrow_exception(agreed);
    } catch (const AgreedError& failure) {
        end_together(failure, world->rank());
    } catch (const PeerFailure&) {
        throw QuietEnd(1);
    } catch (const std::exception&) {
        throw own_failure(std::current_exception(), fmt::format("Rank {}: ", world->rank()));
    }
}

WorldOptions world_options(const Arguments& arguments) {
    return {.deadline = std::chrono::seconds(arguments.integer("ddp_timeout")),
            .comm_debug = arguments.flag("comm_debug")};
}

void check_started_alike(const RunProcesses& processes, const Arguments& arguments) {
    NamedTexts alike{{"the version of drover", DROVER_VERSION}};
    const Json settings = arguments.to_json();
    for (const auto& [name, value] : settings.items())
        if (std::find(own_arguments.begin(), own_arguments.end(), name) == own_arguments.end())
            alike.emplace_back("--" + name, value.dump());
    check_ranks_agree(processes.ranks, alike);
}

Speech::Speech(const RunProcesses& processes, const Arguments& arguments)
    : is_first_(processes.is_first()),
      log_(open_log(processes, arguments)),
      messages_(choose(processes, arguments)) {}

Speech::File Speech::open_log(const RunProcesses& processes, const Arguments& arguments) {
    const auto folder = arguments.optional_text("rank_log_dir");
    if (!folder || processes.is_first()) return nullptr;
    std::filesystem::create_directories(*folder);
    const std::filesystem::path path =
        std::filesystem::path(*folder) / fmt::format("rank-{}.log", processes.ranks.rank());
    File file(std::fopen(path.c_str(), "w"));
    if (!file)
        throw Error(
            fmt::format("--rank_log_dir: {} cannot be written: {}.", path.string(), std::strerror(errno)),
            "Name a folder that can be written.");
    return file;
}

Messages Speech::choose(const RunProcesses& processes, const Arguments& arguments) const {
    // A dry run is asked for what it says.
    const std::string level = arguments.flag("dry_run") ? "info" : arguments.text("log_level");
    if (is_first_) return Messages(level);
    const std::string before = fmt::format("[rank {}] ", processes.ranks.rank());
    if (arguments.flag("log_on_each_node") && processes.machine.rank == 0)
        return Messages(level, stderr, before);
    const bool said = arguments.given("log_level_replica");
    const std::string replica = said ? arguments.text("log_level_replica") : level;
    if (log_) return Messages(replica, log_.get());
    return Messages(said ? replica : "critical", stderr, before);
}

}  // namespace drover
