#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "app/command_words.h"
#include "app/commands.h"
#include "app/process_start.h"
#include "core/console.h"
#include "core/error.h"
#include "core/failure.h"
#include "core/mapped_file.h"
#include "run/messages.h"
#include "run/processes.h"

#ifdef __SANITIZE_ADDRESS__
/// Called by the address sanitizer. mpirun preloads a library (launch/leader.cpp) and starts this program
/// with it.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() {
    return "verify_asan_link_order=0";
}
#endif

namespace {

/// Example: "running drover eval".
std::string doing_of(int count, const char* const* words) {
    return count > 1 && words[1][0] != '-' ? fmt::format("running drover {}", words[1]) : "running drover";
}

/// An exception that escapes from a thread would abort the program.
[[noreturn]] void end_by_terminate() {
    drover::Error error("The program failed because of an internal error in one of its threads.",
                        "Please report it.");
    try {
        if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const drover::Error& problem) {
        error = problem;
    } catch (const std::exception& problem) {
        error = drover::explain_failure(problem, "working in a thread");
    } catch (...) {
    }
    drover::show_end(error);
    std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    drover::open_standard_descriptors();
    drover::choose_thread_waits(argv);
    std::set_terminate(end_by_terminate);
    drover::name_shortened_files();
    CLI::App app(
        "Trains Llama, Mistral, Mixtral and Qwen models from the configs, data and checkpoints that Hugging Face users "
        "have.",
        "drover");
    app.set_version_flag("--version", DROVER_VERSION);
    app.require_subcommand(1);
    drover::add_run_clm_command(app);
    drover::add_run_llama_nxd_command(app);
    drover::add_sft_command(app);
    drover::add_launch_command(app);
    drover::add_precompile_command(app);
    drover::add_generate_command(app);
    drover::add_eval_command(app);
    drover::add_bench_command(app);
    drover::add_tokenize_command(app);
    drover::add_convert_command(app);
    drover::add_fetch_command(app);
    drover::add_login_command(app);
    drover::add_cache_command(app);

    const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
        drover::print_log(stderr,
                          "drover: There is no command \"{}\".\nRun `drover --help` to see what is known.\n",
                          argv[1]);
        return 2;
    }
    try {
        std::vector<std::string> words = drover::known_spellings(app, {argv + 1, argv + argc});
        std::reverse(words.begin(), words.end());  // the order CLI11 expects
        app.parse(words);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        if (!app.remaining(true).empty()) {                      // often the cause of other errors
            drover::show_end(drover::not_expected(app));
            return 2;
        }
        const auto commands = app.get_subcommands();
        drover::print_log(stderr, "drover: {}\nRun `drover {}--help` to see what is known.\n", error.what(),
                          commands.empty() ? "" : commands[0]->get_name() + " ");
        return 2;
    } catch (const drover::QuietEnd& end) {
        return end.exit_code();
    } catch (const drover::Error& error) {
        drover::show_end(error);
        return error.exit_code();
    } catch (const std::exception& problem) {
        drover::show_end(drover::explain_failure(problem, doing_of(argc, argv)));
        return 1;
    }
    return 0;
}
