#include "api/launch_environment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "core/error.h"

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

/// The variables of one launcher. Those that it must have set are in `marks`.
struct Launcher {
    const char *processes, *rank;
    std::array<const char*, 2> marks{};  ///< one of them is set; none named: nothing more is needed
};

constexpr std::array launchers{
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    Launcher{"PMI_SIZE", "PMI_RANK"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    // PMIx gives a rank alone; srun --mpi=pmix gives the number beside it.
    Launcher{"SLURM_NTASKS", "SLURM_PROCID", {"SLURM_STEP_ID", "PMIX_RANK"}},
};

}  // namespace

LaunchEnvironment read_launch_environment(const ReadVariable& read) {
    for (const Launcher& launcher : launchers) {
        const auto processes = read(launcher.processes), rank = read(launcher.rank);
        if (!processes || !rank) continue;
        const bool marked =
            launcher.marks[0] == nullptr || read(launcher.marks[0]) || read(launcher.marks[1]);
        if (!marked) continue;
        const LaunchEnvironment found{.processes = number_of(launcher.processes, *processes),
                                      .rank = number_of(launcher.rank, *rank),
                                      .told_by = launcher.processes};
        if (found.rank >= found.processes)
            throw Error(fmt::format("{} is {}, but {} is {}.", launcher.rank, found.rank, launcher.processes,
                                    found.processes),
                        "A launcher sets them; unset both to run one process.");
        return found;
    }
    return {};
}

LaunchEnvironment read_launch_environment() {
    return read_launch_environment([](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    });
}

}  // namespace drover
