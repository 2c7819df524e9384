#include "public/trainer_processes.h"

#include <atomic>

#include "core/console.h"
#include "core/error.h"
#include "public/trainer_settings.h"

namespace drover::v1 {
namespace {

std::atomic<bool> gpus_are_taken = false;

}  // namespace

StartedRun start_run(const TrainerParts& parts) {
    const LaunchEnvironment launch = read_launch_environment();
    refuse_foreign_launcher(launch, own_program_words());
    RunSettings settings;
    std::exception_ptr refusal;  // of this process; the others may have been given something else
    try {
        settings = settings_of(parts, launch.processes);
    } catch (const Error&) {
        if (!launch.has_others()) throw;
        refusal = std::current_exception();
    }
    const WorldOptions waits = world_options(settings, launch);
    const Processes& processes = program_processes(waits);
    processes.group.together([&] {
        if (refusal) std::rethrow_exception(refusal);
        check_waits(processes, waits);
    });
    check_started_alike(processes, settings);
    return {std::move(settings), processes};
}

GpusOfProcesses::GpusOfProcesses() {
    if (gpus_are_taken.exchange(true))
        throw Error("Another Trainer of this program still uses the GPUs of these processes.",
                    "Let the first one go before the second is made.");
}

GpusOfProcesses::~GpusOfProcesses() {
    gpus_are_taken = false;
}

void report_failure(const std::string& program, const std::exception& error) {
    try {
        let_first_report(read_launch_environment());
    } catch (const Error&) {
        // The variables cannot be read, so no launcher has set them.
    }
    print_log(stderr, "{}: {}\n", program, error.what());
}

}  // namespace drover::v1
