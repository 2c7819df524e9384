#include "launch/leader.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/program_module.h"
#include "core/this_process.h"
#include "launch/agent.h"
#include "launch/command_line.h"
#include "launch/daemons.h"
#include "launch/job.h"
#include "launch/machine.h"
#include "launch/network.h"
#include "launch/signals.h"

extern char** environ;

namespace drover {
namespace {

using namespace std::chrono_literals;

void say(const std::string& line) {
    print_log(stderr, "drover: {}\n", line);
}

LaunchEnvironmentVariables whole_environment() {
    LaunchEnvironmentVariables variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos)
            variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return variables;
}

class Leader {
  public:
    Leader(const LaunchOptions& options, int processes, std::optional<MeetingPlace> place)
        : options_(options), mpirun_(find_mpirun()), signals_(loop_) {
        plan_.major_version = mpirun_.major_version;
        plan_.drover = program_path();
        if (options.own_command) plan_.program.push_back(plan_.drover.native());
        plan_.program.insert(plan_.program.end(), options.program.begin(), options.program.end());
        plan_.processes = processes;
        plan_.as_root = geteuid() == 0;
        plan_.log_folder = options.log_folder;
        plan_.files_only = options.files_only;
        plan_.more = options.mpirun_arguments;
        if (!options.log.empty()) log_.emplace(options.log);
        watch_reader();
        if (!place) return;
        rendezvous_.emplace(loop_, std::move(place->listener),
                            Rendezvous::Settings{place->address, options.nodes, processes, place->key});
        daemons_.emplace(loop_, *rendezvous_);
        rendezvous_->on_message([this](int node, const LaunchMessage& message) { hear(node, message); });
    }

    int run() {
        if (rendezvous_) {
            wait_for_nodes();
            plan_nodes();
        } else {
            plan_machines();
        }
        const std::vector<std::string> words = mpirun_words(plan_);
        for (int restart = 0;; ++restart) {
            const int status = run_once(words);
            if (status == 0 || end_asked_ || lost_ || restart == options_.max_restarts) return finish(status);
            say(fmt::format("The job ended with status {}; it is started again ({} of {}).", status,
                            restart + 1, options_.max_restarts));
        }
    }

    /// Tells the other nodes that the job has ended, and waits until they have disconnected: closing a
    /// connection with unread data would lose the message.
    void dismiss_nodes(int status, const std::string& why) {
        if (!rendezvous_) return;
        rendezvous_->send_to_all({.subject = LaunchSubject::finish, .numbers = {status}, .texts = {why}});
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (rendezvous_->has_nodes() && std::chrono::steady_clock::now() < deadline) loop_.wait(100ms);
    }

  private:
    /// If the reader of the output is gone, mpirun, which writes to the same pipe, ignores it at first and
    /// later kills the job.
    void watch_reader() {
        struct stat status {};
        if (fstat(STDOUT_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
        loop_.watch(STDOUT_FILENO, [this] {
            loop_.forget(STDOUT_FILENO);
            nodes_signals_.push_back(SIGPIPE);
        });
    }

    void wait_for_nodes() {
        using Clock = std::chrono::steady_clock;
        const Clock::time_point deadline = Clock::now() + options_.join_timeout;
        Clock::time_point next_report = Clock::now() + 5s;
        while (!rendezvous_->is_complete()) {
            loop_.wait(200ms);
            rendezvous_->tidy();
            for (const int number : signals_.take()) {
                if (!asks_for_the_end(number)) continue;
                dismiss_nodes(128 + number, "Node 0 was stopped before all nodes had joined.");
                std::exit(128 + number);
            }
            if (rendezvous_->is_complete()) break;
            const std::string missing = name_nodes(rendezvous_->missing());
            if (Clock::now() > deadline)
                throw Error(
                    fmt::format("Of {} nodes, {} did not arrive within {} s.", options_.nodes, missing,
                                options_.join_timeout.count()),
                    "Start drover launch there with the same --nnodes, --master_addr, --master_port and "
                    "--rdzv_id.");
            if (Clock::now() > next_report) {
                say(fmt::format("Waiting for {} at {}:{}.", missing, options_.master_address,
                                options_.master_port));
                next_report = Clock::now() + 30s;
            }
        }
    }

    /// Every node's processes get the environment of its own launcher, as with torchrun.
    void plan_nodes() {
        plan_.nodes = rendezvous_->machines();
        if (static_cast<int>(plan_.nodes.size()) < options_.nodes)
            say(fmt::format("{} nodes have {} between them; each machine's processes are started together.",
                            options_.nodes,
                            counted(static_cast<int>(plan_.nodes.size()), "address", "addresses")));
        const auto network = network_of_own_address(plan_.nodes.front().name);
        const bool one_network =
            network && std::all_of(plan_.nodes.begin(), plan_.nodes.end(), [&](const LaunchHost& node) {
                return is_in_network(node.name, *network);
            });
        const bool told =
            std::getenv("OMPI_MCA_btl_tcp_if_include") || std::getenv("OMPI_MCA_btl_tcp_if_exclude") ||
            std::getenv("OMPI_MCA_oob_tcp_if_include") || std::getenv("OMPI_MCA_oob_tcp_if_exclude") ||
            options_.mpirun_arguments.end() !=
                std::find_if(options_.mpirun_arguments.begin(), options_.mpirun_arguments.end(),
                             [](const std::string& word) { return word.find("_if_") != std::string::npos; });
        if (one_network && !told && plan_.nodes.size() > 1) plan_.network = *network;
        if (plan_.nodes.size() == 1) stay_on_loopback();
        setenv(launch_socket_variable, daemons_->socket_name().c_str(), 1);
    }

    /// No other machine needs to reach a job on a single machine, so none can. The processes inherit mpirun's
    /// environment. The variables are not given on its command line, where Open MPI accepts them only if
    /// mca_base_env_list does not name any.
    void stay_on_loopback() {
        plan_.one_machine = true;
        plan_.connections_chosen = std::getenv("OMPI_MCA_btl") != nullptr;
        if (std::getenv("NCCL_SOCKET_IFNAME") == nullptr)
            mpirun_variables_.push_back("NCCL_SOCKET_IFNAME=lo");
        const LoadedModule module = load_module("loopback");
        if (module.handle == nullptr || module.place.find_first_of(" :") != std::string::npos)
            return say(fmt::format(
                "mpirun listens on all networks of this machine: {}.",
                module.handle == nullptr ? module.reason : module.place + " has a space or a colon"));
        const char* before = std::getenv("LD_PRELOAD");
        plan_.preloaded = module.place;
        mpirun_variables_.push_back(before == nullptr
                                        ? "LD_PRELOAD=" + module.place
                                        : fmt::format("LD_PRELOAD={}:{}", module.place, before));
    }

    void plan_machines() {
        if (options_.hostfile.empty()) {
            plan_.oversubscribe = plan_.processes > usable_cores();
            stay_on_loopback();
            return;
        }
        plan_.variables = variables_to_pass(whole_environment());
        plan_.hostfile = options_.hostfile;
        const std::vector<LaunchHost> machines = read_hostfile(options_.hostfile);
        plan_.hostfile_machines = static_cast<int>(machines.size());
        for (const LaunchHost& machine : machines) {
            if (machine.processes == 0 || plan_.processes <= machine.processes) continue;
            plan_.oversubscribe = true;
            say(fmt::format("{} gets {} processes, more than its {} in {}; they share processors.",
                            machine.name, plan_.processes, counted(machine.processes, "slot"),
                            options_.hostfile.native()));
        }
    }

    int run_once(const std::vector<std::string>& words) {
        LaunchJob job(loop_, mpirun_, words, mpirun_variables_, log_ ? &*log_ : nullptr);
        std::optional<int> status;
        while (!(status = job.status())) {
            loop_.wait(200ms);
            for (const int number : signals_.take()) take_signal(job, number);
            for (const int number : std::exchange(nodes_signals_, {})) take_signal(job, number);
            if (!rendezvous_) continue;
            rendezvous_->tidy();
            if (lost_ || rendezvous_->is_complete()) continue;
            lost_ = fmt::format("The launcher of {} is gone; the job was ended.",
                                name_nodes(rendezvous_->missing()));
            say(*lost_);
            job.force_end();
        }
        return *status;
    }

    /// The first request to end lets the processes save and end; the next one kills them.
    void take_signal(LaunchJob& job, int number) {
        if (!asks_for_the_end(number)) return job.pass(number);
        if (job.end_asked()) {
            // A closing terminal or pipe may send its signal more than once, and together with another one.
            if (number == SIGHUP || number == SIGPIPE) return;
            say("A second signal: the processes are killed.");
            return job.force_end();
        }
        end_asked_ = true;
        job.ask_end(options_.shutdown_timeout);
    }

    void hear(int node, const LaunchMessage& message) {
        daemons_->take(node, message);
        if (message.subject != LaunchSubject::stop) return;
        const int number = message.numbers[0];
        if (asks_for_the_end(number) || number == SIGUSR1) nodes_signals_.push_back(number);
    }

    int finish(int status) {
        if (lost_ && status == 0) status = 1;
        dismiss_nodes(status, lost_.value_or(""));
        return status;
    }

    const LaunchOptions& options_;
    const Mpirun mpirun_;
    LaunchLoop loop_;
    LaunchSignals signals_;
    MpirunPlan plan_;
    std::vector<std::string> mpirun_variables_;
    std::optional<LaunchLog> log_;
    std::optional<Rendezvous> rendezvous_;
    std::optional<LaunchDaemons> daemons_;
    std::vector<int> nodes_signals_;
    bool end_asked_ = false;
    std::optional<std::string> lost_;
};

}  // namespace

int lead_job(const LaunchOptions& options, int processes, std::optional<MeetingPlace> place) {
    Leader leader(options, processes, std::move(place));
    try {
        return leader.run();
    } catch (const Error& error) {
        leader.dismiss_nodes(1, fmt::format("Node 0 gave up: {}", error.cause()));
        throw;
    }
}

}  // namespace drover
