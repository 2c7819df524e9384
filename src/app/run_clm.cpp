#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "args/help_text.h"
#include "args/parse_words.h"
#include "args/run_settings.h"
#include "core/console.h"
#include "core/failure.h"
#include "core/this_process.h"
#include "run/launch_environment.h"
#include "run/training_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The program's folder, corresponding to the script's folder in Hugging Face's parser.
fs::path arguments_file() {
    return program_path().parent_path() / "run_clm.args";
}

/// The work of run_clm.py, in its order.
void train_and_evaluate(const RunSettings& settings, const Processes& processes, SignalThread& signals) {
    check_started_alike(processes, settings);
    TrainingRun run(settings, processes, &signals);
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

void run_clm(const std::vector<std::string>& words) {
    const LaunchEnvironment launch = read_launch_environment();
    // Checked before the arguments, which are meant for all processes of that launcher together.
    if (launch.foreign && !asks_for_help(words)) {
        let_first_report(launch);
        refuse_foreign_launcher(launch, "run_clm …");
    }
    RunSettings settings;
    std::exception_ptr refusal;  // of this process; the others may have been given something else
    try {
        const RunArguments arguments = parse_run_arguments(words, {.environment = read_environment(),
                                                                   .args_file = arguments_file(),
                                                                   .world_size = launch.processes});
        if (arguments.asks_for_help) {
            if (launch.rank == 0)
                write_result(arguments.arguments.flag("help_markdown") ? markdown_page() : help_text());
            return;
        }
        settings = run_settings(arguments, arguments.arguments.flag("dry_run"));
    } catch (const Error&) {
        if (!launch.has_others()) throw;
        refusal = std::current_exception();
    }
    SignalThread signals;  // before any thread is started
    run_in_processes(launch, world_options(settings.device, launch), [&](Processes& processes) {
        processes.group.together([&] {
            if (refusal) std::rethrow_exception(refusal);
        });
        train_and_evaluate(settings, processes, signals);
    });
}

}  // namespace

void add_run_clm_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("run_clm",
                                           "Trains or fine-tunes a model from a run_clm.py command line.\n"
                                           "Example: drover run_clm --config_name config.json "
                                           "--tokenizer_name tokenizer/ --train_file text.txt --do_train "
                                           "--output_dir out");
    command->set_help_flag();
    command->prefix_command();
    command->callback([command] { run_clm(command->remaining()); });
}

}  // namespace drover
