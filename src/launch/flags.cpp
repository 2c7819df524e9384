#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "args/command.h"
#include "launch/options.h"

namespace drover {
namespace {

/// A torchrun flag that is accepted, and why it has no effect.
struct ExplainedFlag {
    const char* name;  ///< with underscores; may start with a short form
    bool has_value;
    const char* reason;
};

constexpr const char* both_streams =
    "Both streams of every process are shown, and --log or --log_dir keep them in files.";
constexpr const char* no_python = "The processes are not Python processes.";
constexpr std::array explained_flags{
    ExplainedFlag{"--rdzv_backend", true,
                  "There is one way for nodes to meet, at node 0's address and port."},
    ExplainedFlag{"-t,--tee", true, both_streams},
    ExplainedFlag{"--local_ranks_filter", true, both_streams},
    ExplainedFlag{"--duplicate_stdout_filters", true, both_streams},
    ExplainedFlag{"--duplicate_stderr_filters", true, both_streams},
    ExplainedFlag{"--log_line_prefix_template", true,
                  "Lines have no prefix; --mpirun_args --tag-output gives them one."},
    ExplainedFlag{"--logs_specs", true, no_python},
    ExplainedFlag{"--start_method", true, no_python},
    ExplainedFlag{"--event_log_handler", true, no_python},
    ExplainedFlag{"--run_path", false, no_python},
    ExplainedFlag{"--role", true, "A job has one kind of processes."},
    ExplainedFlag{"--monitor_interval", true, "The end of a process is noticed immediately."},
    ExplainedFlag{"--local_addr", true, "A node is known by the address from which it reaches node 0."},
    ExplainedFlag{"--numa_binding", true,
                  "Processes are not bound; --mpirun_args \"--bind-to numa --map-by numa\" binds them."},
    ExplainedFlag{"--signals_to_handle", true,
                  "SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGUSR1 reach the processes."},
    ExplainedFlag{"--virtual_local_rank", false, "Every process takes the GPU of its local rank by itself."},
};

/// torchrun accepts --log_dir and --log-dir.
std::string both_spellings(const std::string& names) {
    std::string dashed = names.substr(names.rfind("--"));
    std::replace(dashed.begin() + 2, dashed.end(), '_', '-');
    return names.ends_with(dashed) ? names : names + "," + dashed;
}

}  // namespace

void add_launch_flags(const Command& command, LaunchFlags& flags) {
    const auto option = [&](const char* names, std::string& value, const char* meaning) {
        command.add_option(both_spellings(names), value, meaning);
    };
    option(
        "--nproc_per_node", flags.nproc_per_node,
        "processes per node: a number, gpu (one per GPU), cpu (one per core), or auto (gpu if there is one, "
        "else cpu); 1 if not given");
    option("--hostfile", flags.hostfile, "start them on the machines of this file of mpirun's, by ssh");
    option("--nnodes", flags.nnodes,
           "number of nodes, each with its own drover launch; else NNODES, WORLD_SIZE");
    option("--node_rank", flags.node_rank, "number of this node; else NODE_RANK, RANK");
    option("--master_addr", flags.master_addr, "name or IPv4 address of node 0; else MASTER_ADDR");
    option("--master_port", flags.master_port, "port there; else MASTER_PORT, 29500");
    option("--rdzv_endpoint", flags.rdzv_endpoint,
           "ADDRESS:PORT of node 0, instead of both; nodes without a number get one");
    option("--rdzv_id", flags.rdzv_id, "name of the job, the same on every node; others are refused");
    command.add_taken_option(
        both_spellings("--secret_file"), [&flags](const std::string& file) { flags.secret_file = file; },
        "file with the job's secret, the same on every node; node 0 creates it; else DROVER_LAUNCH_SECRET");
    option("--rdzv_conf", flags.rdzv_conf, "join_timeout=SECONDS: how long nodes wait for each other (600)");
    command.add_flag("--standalone", flags.standalone, "one node, whatever the environment says");
    option("--max_restarts", flags.max_restarts, "how often a job that fails is started again (0)");
    option("--shutdown_timeout", flags.shutdown_timeout,
           "seconds that processes have to end after a signal; without it, as long as they need");
    option("--log", flags.log, "file that gets everything that is shown");
    option("--log_dir", flags.log_dir,
           "folder for launch.log with everything, and a file per process and stream");
    option("-r,--redirects", flags.redirects, "3: with --log_dir, what processes print is not shown");
    option("--mpirun_args", flags.mpirun_args, "more arguments for mpirun, in one string");
    command.add_flag("--exec,--no_python,--no-python", flags.exec, "start any program instead of a command");
    command.add_flag("-m,--module", flags.module,
                     "the word that follows is a module, as transformers…run_clm");
    for (const ExplainedFlag& flag : explained_flags) {
        const std::string names = both_spellings(flag.name), name = flag.name;
        const auto explain = [&flags, name, reason = flag.reason] {
            flags.explained.push_back(
                fmt::format("{} has no effect. {}", name.substr(name.rfind("--")), reason));
        };
        const Flag added = flag.has_value
                               ? command.add_taken_option(names, [explain](const std::string&) { explain(); })
                               : command.add_acting_flag(names, explain);
        added.hidden();
    }
    command.take_words();
}

}  // namespace drover
