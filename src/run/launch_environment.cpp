#include "run/launch_environment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/this_process.h"

namespace drover {
namespace {

int number_of(const char* name, const std::string& text) {
    int number = 0;
    const char* end = text.data() + text.size();
    const auto [read, problem] = std::from_chars(text.data(), end, number);
    if (problem != std::errc() || read != end || number < 0)
        throw Error(fmt::format("The environment variable {} is \"{}\", which is not a number of processes.",
                                name, text),
                    "A launcher sets it; unset it to run one process.");
    return number;
}

/// The variables of one launcher.
struct Launcher {
    const char *processes, *rank;
    bool needs_step = false;  ///< valid only in a process started by srun
};

constexpr std::array launchers{
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    Launcher{"PMI_SIZE", "PMI_RANK"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    // PMIx gives only a rank; with srun --mpi=pmix this variable gives the number of processes.
    Launcher{"SLURM_NTASKS", "SLURM_PROCID", true},
};

/// A batch script and the shell of salloc are process 0 of their own step, whose id is one of the highest
/// possible, or not set.
bool is_in_step_of_srun(const ReadVariable& read, int rank) {
    if (rank > 0 || read("PMIX_RANK")) return true;
    const std::optional<std::string> step = read("SLURM_STEP_ID");
    return step && !(step->size() == 10 && step->starts_with("42949672"));
}

LaunchEnvironment told(const Launcher& launcher, const std::string& processes, const std::string& rank) {
    LaunchEnvironment found{.processes = number_of(launcher.processes, processes),
                            .rank = number_of(launcher.rank, rank),
                            .told_by = launcher.processes};
    if (found.rank >= found.processes)
        throw Error(fmt::format("{} is {}, but {} is {}.", launcher.rank, found.rank, launcher.processes,
                                found.processes),
                    "A launcher sets them; unset both to run one process.");
    return found;
}

/// The flags of drover launch for torchrun's processes, with `on_machine` of them on this machine (0:
/// unknown).
std::string flags_for(const ReadVariable& read, int processes, int on_machine) {
    if (on_machine == 0 || on_machine >= processes) return fmt::format("--nproc_per_node {} ", processes);
    return fmt::format("--nnodes {} --node_rank {} --master_addr {} --nproc_per_node {} ",
                       (processes + on_machine - 1) / on_machine, read("GROUP_RANK").value_or("NUMBER"),
                       read("MASTER_ADDR").value_or("ADDRESS"), on_machine);
}

/// What a supported launcher reported, that is, one whose processes can find each other.
LaunchEnvironment read_launchers(const ReadVariable& read) {
    for (const Launcher& launcher : launchers) {
        const auto processes = read(launcher.processes), rank = read(launcher.rank);
        if (!processes || !rank) continue;
        if (launcher.needs_step && !is_in_step_of_srun(read, number_of(launcher.rank, *rank))) continue;
        return told(launcher, *processes, *rank);
    }
    return {};
}

/// torchrun, accelerate and deepspeed set these for every process; some platforms set them for every machine.
/// They may themselves have been started by another launcher, whose information is `outer`. drover launch
/// sets the same numbers for both.
LaunchEnvironment read_torchrun(const ReadVariable& read, const LaunchEnvironment& outer) {
    constexpr Launcher torchrun{"WORLD_SIZE", "RANK"};
    const auto processes = read(torchrun.processes), rank = read(torchrun.rank);
    if (processes.value_or("").empty() || rank.value_or("").empty()) return outer;
    const LaunchEnvironment found = told(torchrun, *processes, *rank);
    if (found.processes <= outer.processes) return outer;
    const std::string on_machine = read("LOCAL_WORLD_SIZE").value_or("");
    ForeignLauncher foreign{.variable = torchrun.processes,
                            .processes = found.processes,
                            .started_in = outer.processes,
                            .one_per_machine = read("LOCAL_RANK").value_or("").empty()};
    if (!foreign.one_per_machine)
        foreign.flags = flags_for(read, found.processes,
                                  on_machine.empty() ? 0 : number_of("LOCAL_WORLD_SIZE", on_machine));
    return {.rank = found.rank, .foreign = foreign};
}

}  // namespace

LaunchEnvironment read_launch_environment(const ReadVariable& read) {
    return read_torchrun(read, read_launchers(read));
}

void refuse_foreign_launcher(const LaunchEnvironment& launch, std::string_view program) {
    if (!launch.foreign) return;
    const ForeignLauncher& foreign = *launch.foreign;
    throw Error(
        fmt::format("{} is {}: another launcher has started {} processes, which would each train alone.",
                    foreign.variable, foreign.processes, foreign.processes),
        fmt::format("Use drover launch {}{}{}; to train in {}, unset WORLD_SIZE and RANK.", foreign.flags,
                    program, foreign.one_per_machine ? " on every machine" : " in place of that launcher",
                    foreign.started_in == 1
                        ? "one process"
                        : fmt::format("the {} processes of mpirun or srun", foreign.started_in)));
}

std::string own_program_words() {
    const std::filesystem::path program = program_path();
    return fmt::format("--exec ./{} …", program.empty() ? "program" : program.filename().native());
}

LaunchEnvironment read_launch_environment() {
    return read_launch_environment([](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    });
}

}  // namespace drover
