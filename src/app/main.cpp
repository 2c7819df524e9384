#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "app/build_facts.h"
#include "app/command_help.h"
#include "app/command_words.h"
#include "app/commands.h"
#include "app/process_start.h"
#include "app/program_help.h"
#include "args/command.h"
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
    const drover::CommandLine line(
        "Train Llama, Mistral, Mixtral and Qwen models from the configs, data and checkpoints that Hugging "
        "Face users have.",
        "drover");
    line.expect_command([] { return drover::version_text(drover::own_build_facts()); });
    const drover::Command& program = line.program();
    program.replace_help(drover::command_help);
    drover::add_run_clm_command(program);
    drover::add_run_llama_nxd_command(program);
    drover::add_sft_command(program);
    drover::add_launch_command(program);
    drover::add_precompile_command(program);
    drover::add_generate_command(program);
    drover::add_eval_command(program);
    drover::add_bench_command(program);
    drover::add_tokenize_command(program);
    drover::add_convert_command(program);
    drover::add_fetch_command(program);
    drover::add_login_command(program);
    drover::add_cache_command(program);
    drover::add_doctor_command(program);
    drover::add_help_command(program);
    drover::add_completion_command(program);
    drover::add_man_command(program);
    program.replace_help(drover::program_help);

    try {
        if (argc > 1 && argv[1][0] != '-' && !drover::find_written_command(program, argv[1]))
            throw drover::no_such_command(program, argv[1]);
        if (const auto text = drover::help_on_topic(program, {argv + 1, argv + argc})) {
            drover::write_result(*text);
            return 0;
        }
        const std::optional<drover::UsageError> problem =
            line.run(drover::known_spellings(program, {argv + 1, argv + argc}));
        if (!problem) return 0;
        const drover::Command given = program.given_command().value_or(program);
        // Often the cause of other errors, unless the command passes words on.
        if (!program.all_words().empty() && !given.takes_words()) {
            drover::show_end(drover::not_expected(program));
            return 2;
        }
        drover::show_end(*problem);
        return problem->exit_code();
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
