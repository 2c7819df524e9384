#include "app/training_command.h"

#include <fmt/format.h>

#include "args/argument_file.h"
#include "args/help_text.h"
#include "core/console.h"
#include "core/failure.h"
#include "run/launch_environment.h"
#include "run/training_run.h"

namespace drover {
namespace {

/// The phases of a run, in the order of run_clm.py.
void train_and_evaluate(const RunSettings& settings, const Processes& processes, SignalThread& signals) {
    check_started_alike(processes, settings);
    TrainingRun run(settings, processes, &signals);
    if (!settings.do_train && !settings.do_eval && !settings.dry_run) return;  // it has said so
    if (!settings.dry_run) run.lock_output_folder();
    run.read();
    run.choose_device();
    run.plan();
    run.describe();
    if (settings.dry_run) return;
    explain_failures("training", [&] {
        const bool complete = run.is_complete();
        if (!complete || settings.do_eval) run.prepare();
        if (settings.do_train && !complete) run.write_training_results(run.train_or_stop());
        if (settings.do_eval) {
            run.messages().info("*** Evaluate ***");
            run.write_evaluation_results(run.evaluate());
        }
        run.conclude();
    });
}

}  // namespace

void run_training_command(const ArgumentTable& table, const std::vector<std::string>& words,
                          const ReadSettings& read) {
    const LaunchEnvironment launch = read_launch_environment();
    if (const std::optional<HelpRequest> request = help_request(words)) {
        const std::string text = help_answer(table, *request);
        if (launch.rank == 0) write_result(text);
        return;
    }
    // Checked before the arguments, which are meant for all processes of that launcher together.
    if (launch.foreign) {
        let_first_report(launch);
        refuse_foreign_launcher(launch, fmt::format("{} …", table.command()));
    }
    RunSettings settings;
    std::exception_ptr refusal;  // of this process; the others may have been given something else
    try {
        // Read once: it may be a pipe.
        std::vector<std::string> flags = words;
        const std::optional<ArgumentFile> file = take_argument_file(table, flags);
        if (file) set_variables(*file);
        settings = read(flags, {.environment = read_environment(),
                                .file = file ? &*file : nullptr,
                                .world_size = launch.processes});
    } catch (const Error&) {
        if (!launch.has_others()) throw;
        refusal = std::current_exception();
    }
    SignalThread signals;  // before any thread is started
    run_in_processes(launch, world_options(settings, launch), [&](Processes& processes) {
        processes.group.together([&] {
            if (refusal) std::rethrow_exception(refusal);
        });
        train_and_evaluate(settings, processes, signals);
    });
}

}  // namespace drover
