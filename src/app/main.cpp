#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "api/messages.h"
#include "api/run_processes.h"
#include "app/commands.h"
#include "core/error.h"
#include "core/shortened_files.h"

int main(int argc, char** argv) {
    drover::name_shortened_files();
    CLI::App app("Trains Llama models from the configs, data and checkpoints that Hugging Face users have.",
                 "drover");
    app.set_version_flag("--version", DROVER_VERSION);
    app.require_subcommand(1);
    drover::add_run_clm_command(app);
    drover::add_launch_command(app);
    drover::add_generate_command(app);
    drover::add_eval_command(app);
    drover::add_bench_command(app);
    drover::add_tokenize_command(app);

    const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
        std::fprintf(stderr,
                     "drover: There is no command \"%s\".\nRun `drover --help` to see what is known.\n",
                     argv[1]);
        return 2;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        std::fprintf(
            stderr, "drover: %s\nRun `drover %s--help` to see what is known.\n", error.what(),
            app.get_subcommands().empty() ? "" : (app.get_subcommands()[0]->get_name() + " ").c_str());
        return 2;
    } catch (const drover::QuietEnd& end) {
        return end.exit_code();
    } catch (const drover::Error& error) {
        drover::show_end(error);
        return error.exit_code();
    } catch (const std::filesystem::filesystem_error& error) {
        std::fprintf(stderr, "drover: %s. Check the path and its permissions.\n", error.what());
        return 1;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr,
                     "drover: The machine has too little memory for this. Use a smaller batch or model.\n");
        return 1;
    }
    return 0;
}
