#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "app/command_words.h"
#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "launch/agent.h"
#include "launch/leader.h"
#include "launch/machine.h"
#include "launch/message.h"
#include "launch/network.h"
#include "launch/node.h"
#include "launch/options.h"
#include "launch/outer_job.h"
#include "launch/process.h"
#include "launch/secret.h"

namespace drover {
namespace {

/// The variables from which options may come.
LaunchEnvironmentVariables read_variables() {
    LaunchEnvironmentVariables variables;
    for (const char* name :
         {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
          "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_MAX_RESTARTS", "NNODES", "NODE_RANK", "MASTER_ADDR",
          "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"})
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
            variables[name] = value;
    // An empty value is rejected: the user meant to protect the job.
    if (const char* secret = std::getenv(launch_secret_variable)) variables[launch_secret_variable] = secret;
    unsetenv(launch_secret_variable);  // the job's programs need not know it
    return variables;
}

/// Prints how the processes of this machine share it.
void say_shares(int processes) {
    const int cores = usable_cores(), threads = threads_per_process(processes);
    std::string line = counted(processes, "process", "processes");
    if (processes > cores) line += fmt::format(" on {}, which they share", counted(cores, "core"));
    if (std::getenv("OMP_NUM_THREADS") == nullptr)
        line += fmt::format("; OMP_NUM_THREADS={}{}", threads, processes == 1 ? "" : " for each");
    print_log(stderr, "drover: {}.\n", line);
}

int launch(const LaunchFlags& flags) {
    const LaunchOptions options = read_launch_options(flags, read_variables());
    for (const std::string& remark : options.remarks) print_log(stderr, "drover: {}\n", remark);
    const int processes = count_processes(options.processes);
    if (options.hostfile.empty()) say_shares(processes);
    leave_outer_mpi_job();
    if (options.nodes == 1) return lead_job(options, processes, std::nullopt);

    const std::string address = ipv4_address_of(options.master_address);
    const bool leads =
        options.node_rank == 0 || (options.node_rank == any_node && network_of_own_address(address));
    FileDescriptor listener;
    if (leads) {
        listener = listen_on(address, options.master_port);
        if (!listener.is_open())
            throw Error(
                fmt::format("Another program listens on {}:{}.", address, options.master_port),
                options.node_rank == 0
                    ? "Choose another port with --master_port, the same on every node."
                    : "This machine has the address, so this launcher would be node 0: choose another port "
                      "with "
                      "--master_port, or give --node_rank where several launchers run on one machine.");
    }
    const std::string secret = options.secret_file.empty()
                                   ? options.secret
                                   : read_secret_file(options.secret_file, leads, options.join_timeout);
    const LaunchKey key(secret, options.job_id);
    if (leads) return lead_job(options, processes, MeetingPlace{std::move(listener), address, key});
    return follow_job(options, address, processes, key);
}

/// A command started by another part of the launcher, never by users.
Command add_hidden_command(const Command& app, const char* name) {
    const Command command = app.add_command(name, "A part of drover launch.");
    command.hide();
    command.without_help();
    command.take_words();
    return command;
}

}  // namespace

void add_launch_command(const Command& app) {
    auto flags = std::make_shared<LaunchFlags>();
    const Command command =
        app.add_command("launch",
                        "Start run_clm, run_llama_nxd or sft on several processes, as torchrun does: on "
                        "this machine, on those "
                        "of a hostfile, or on "
                        "nodes that each start it.\nExample: drover launch --nproc_per_node 2 run_clm "
                        "--config_name config.json "
                        "--tokenizer_name tokenizer/ --train_file text.txt --do_train --output_dir out");
    add_launch_flags(command, *flags);
    command.set_footer(
        "After the flags: run_clm, run_llama_nxd or sft (run_clm.py and the like are the same) and its "
        "arguments; with --exec a program and its arguments. Other flags of torchrun are accepted with a "
        "line that says why they have no effect. "
        "See "
        "docs/launch.md.");
    command.set_action([command, flags] {
        flags->words = command.words();
        if (!flags->words.empty() && flags->words.front().starts_with("--"))
            throw unknown_flag(command, flags->words.front(), "Flags of run_clm belong after run_clm.");
        // A job's exit status can be any number, whereas errors of this program have fixed ones.
        std::exit(launch(*flags));
    });
    const Command agent = add_hidden_command(app, "launch-agent");
    agent.set_action([agent] { std::exit(run_launch_agent(agent.words())); });
    const Command process = add_hidden_command(app, "launch-process");
    auto settings = std::make_shared<ProcessSettings>();
    process.add_option("--preloaded", settings->preloaded);
    process.add_option("--log_dir", settings->logs);
    process.add_flag("--files_only", settings->files_only);
    process.set_action([process, settings] { std::exit(run_launch_process(process.words(), *settings)); });
}

}  // namespace drover
