#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "app/command_words.h"
#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "core/this_process.h"
#include "core/words.h"

namespace drover {
namespace {

struct PrecompileOptions {
    std::string part;  ///< of the work: neuron_parallel_compile's --command
    std::string work_folder;
};

/// Becomes the command: its exit status and signals are its own.
[[noreturn]] void become(std::vector<std::string> words, const Command& app) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    throw Error(fmt::format("{} cannot be started: {}.", words.front(), std::strerror(errno)),
                did_you_mean(words.front(), app.command_names(), "",
                             "Name a program, a script that can be executed, or a command of drover."));
}

void precompile(const PrecompileOptions& options, const Command& command, const Command& app) {
    std::vector<std::string> words = command.words();
    if (!options.work_folder.empty())
        print_log(stderr, "drover: --compile_workdir has no effect: nothing is compiled into files.\n");
    if (options.part == "clean" || options.part == "clear-locks") {
        print_log(stderr, "drover: Nothing is compiled into files, so there is nothing to {}.\n",
                  options.part == "clean" ? "remove" : "unlock");
        return;
    }
    if (options.part == "compile") {
        print_log(stderr, "drover: There is nothing left to compile: kernels are part of the program.\n");
        return;
    }
    if (words.empty())
        throw UsageError(
            "No command is given.",
            "Write the command that trains after precompile, as in: drover precompile bash run.sh");
    if (words.front().starts_with("--"))
        throw unknown_flag(command, words.front(),
                           "Flags of the command that is rehearsed belong after its name.");
    setenv("NEURON_EXTRACT_GRAPHS_ONLY", "1", 1);
    print_log(
        stderr,
        "drover: A rehearsal: run_llama_nxd trains 10 steps and saves nothing, run_clm checks and plans "
        "(NEURON_EXTRACT_GRAPHS_ONLY=1).\n");
    if (find_written_command(app, words.front())) words.insert(words.begin(), program_path().native());
    become(std::move(words), app);
}

}  // namespace

void add_precompile_command(const Command& app) {
    auto options = std::make_shared<PrecompileOptions>();
    const Command command = app.add_command(
        "precompile",
        "Rehearse a training command, as neuron_parallel_compile does: drover's commands inside it check "
        "files, data, mesh and memory; run_llama_nxd also trains 10 steps, without checkpoints.\n"
        "Example: drover precompile bash run_llama3_70B_tp_pp.sh");
    command
        .add_option(
            "--command", options->part,
            "part of the work, for scripts that name one; compile, clean and clear-locks do nothing here")
        .one_of({"collect", "compile", "clean", "clear-locks", "collect_and_compile"});
    command.add_option("--compile_workdir,--compile-workdir", options->work_folder, "has no effect here");
    command.set_footer("After the flags: a program or script, or a command of drover, and its arguments.");
    command.take_words();
    command.set_action([=] { precompile(*options, command, app); });
}

}  // namespace drover
