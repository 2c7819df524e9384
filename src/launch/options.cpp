#include "launch/options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/words.h"
#include "launch/message.h"
#include "launch/secret.h"

namespace drover {
namespace {

/// A setting and the flag or variable it came from.
struct Given {
    std::string text, source;
    explicit operator bool() const { return !text.empty(); }
};

int whole_number(const Given& given, int least, int most) {
    int number = 0;
    const char* end = given.text.data() + given.text.size();
    const auto [read, problem] = std::from_chars(given.text.data(), end, number);
    if (problem != std::errc() || read != end || number < least || number > most)
        throw UsageError(fmt::format("{} is \"{}\".", given.source, given.text),
                         fmt::format("Give a whole number from {} to {}.", least, most));
    return number;
}

class Reader {
  public:
    Reader(const LaunchFlags& flags, const LaunchEnvironmentVariables& environment)
        : flags_(flags), environment_(environment) {}

    LaunchOptions read() {
        options_.remarks = flags_.explained;
        read_nodes();
        read_processes();
        read_waiting();
        read_logs();
        read_program();
        return std::move(options_);
    }

  private:
    /// The flag, otherwise torchrun's variable for it, otherwise the first other variable that is set.
    Given given(const std::string& value, const std::string& flag, const std::string& torchrun_variable,
                std::initializer_list<const char*> others = {}) const {
        if (!value.empty()) return {value, "--" + flag};
        if (const Given found = variable(torchrun_variable)) return found;
        for (const char* name : others)
            if (const Given found = variable(name)) return found;
        return {};
    }
    Given variable(const std::string& name) const {
        const auto found = environment_.find(name);
        return found == environment_.end() ? Given{} : Given{found->second, "The variable " + name};
    }
    /// RANK and WORLD_SIZE count nodes if a platform sets them once per machine. A launcher that sets them
    /// per process also sets LOCAL_RANK.
    Given node_variable(const char* name) const { return variable("LOCAL_RANK") ? Given{} : variable(name); }

    void read_nodes() {
        Given nodes = given(flags_.nnodes, "nnodes", "PET_NNODES", {"NNODES"});
        const bool by_platform = !nodes && node_variable("RANK");
        if (by_platform) nodes = node_variable("WORLD_SIZE");
        if (flags_.standalone || !nodes) return check_one_node();
        if (const std::size_t colon = nodes.text.find(':'); colon != std::string::npos) {
            const Given least{nodes.text.substr(0, colon), nodes.source};
            nodes.text.erase(0, colon + 1);
            if (whole_number(least, 1, most_nodes) != whole_number(nodes, 1, most_nodes))
                options_.remarks.push_back(
                    fmt::format("A job does not grow or shrink; {} nodes are waited for.", nodes.text));
        }
        options_.nodes = whole_number(nodes, 1, most_nodes);
        if (options_.nodes == 1) return check_one_node();
        if (!flags_.hostfile.empty())
            throw UsageError(fmt::format("--hostfile is given, and {} is {}.", nodes.source, options_.nodes),
                             "Use --hostfile from one machine, or --nnodes with a launcher on every node.");
        if (by_platform)
            options_.remarks.push_back(
                fmt::format("WORLD_SIZE={} is taken as the number of nodes.", nodes.text));
        read_meeting_place();
        read_node_rank();
    }

    /// Multi-node settings are ignored, unless they contradict a single node.
    void check_one_node() const {
        const Given rank{flags_.node_rank, "--node_rank"};
        if (rank && !flags_.standalone && whole_number(rank, 0, most_nodes) > 0)
            throw UsageError(fmt::format("--node_rank is {}, but there is one node.", rank.text),
                             "Give the number of nodes with --nnodes.");
    }

    void read_meeting_place() {
        Given address = given(flags_.master_addr, "master_addr", "PET_MASTER_ADDR", {"MASTER_ADDR"});
        Given port = given(flags_.master_port, "master_port", "PET_MASTER_PORT", {"MASTER_PORT"});
        if (const Given place = given(flags_.rdzv_endpoint, "rdzv_endpoint", "PET_RDZV_ENDPOINT")) {
            const std::size_t colon = place.text.rfind(':');
            address = {place.text.substr(0, colon), place.source};
            if (colon != std::string::npos) port = {place.text.substr(colon + 1), place.source};
        }
        if (!address)
            throw UsageError(fmt::format("The job has {} nodes, but no address of node 0.", options_.nodes),
                             "Give --master_addr and --master_port, or --rdzv_endpoint ADDRESS:PORT.");
        options_.master_address = address.text;
        if (port) options_.master_port = whole_number(port, 1, 65535);
        if (const Given id = given(flags_.rdzv_id, "rdzv_id", "PET_RDZV_ID")) options_.job_id = id.text;
        if (options_.job_id.size() > most_id_bytes)
            throw UsageError(fmt::format("--rdzv_id has {} bytes.", options_.job_id.size()),
                             fmt::format("Give at most {}.", most_id_bytes));
        read_secret();
    }

    void read_secret() {
        if (flags_.secret_file) {
            if (flags_.secret_file->empty())
                throw UsageError("--secret_file is \"\".", "Name a file, the same on every node.");
            options_.secret_file = *flags_.secret_file;
            return;
        }
        if (const auto secret = environment_.find(launch_secret_variable); secret != environment_.end()) {
            check_secret(secret->second, launch_secret_variable);
            options_.secret = secret->second;
            return;
        }
        options_.remarks.push_back(
            options_.job_id == LaunchOptions{}.job_id
                ? "This job has no secret: anyone who reaches node 0's port can join it, and anyone who "
                  "answers there is taken for node 0. Give every node the same --secret_file."
                : "The nodes recognise each other only by --rdzv_id, which others may guess or see in the "
                  "list of "
                  "processes. Give every node the same --secret_file.");
    }

    void read_node_rank() {
        Given rank = given(flags_.node_rank, "node_rank", "PET_NODE_RANK", {"NODE_RANK"});
        if (!rank && (rank = node_variable("RANK")))
            options_.remarks.push_back(
                fmt::format("RANK={} is taken as the number of this node.", rank.text));
        options_.node_rank = rank ? whole_number(rank, 0, options_.nodes - 1) : any_node;
    }

    void read_processes() {
        options_.hostfile = flags_.hostfile;
        const Given processes = given(flags_.nproc_per_node, "nproc_per_node", "PET_NPROC_PER_NODE");
        using Kind = ProcessCount::Kind;
        if (!processes)
            options_.processes.kind = options_.hostfile.empty() ? Kind::number : Kind::hostfile_slots;
        else if (processes.text == "gpu")
            options_.processes.kind = Kind::gpu;
        else if (processes.text == "cpu")
            options_.processes.kind = Kind::cpu;
        else if (processes.text == "auto")
            options_.processes.kind = Kind::automatic;
        else if (processes.text.find_first_not_of("0123456789") != std::string::npos)
            throw UsageError(fmt::format("{} is \"{}\".", processes.source, processes.text),
                             "Give a number, gpu, cpu or auto.");
        else
            options_.processes.number = whole_number(processes, 1, most_processes);
    }

    void read_waiting() {
        if (const Given restarts = given(flags_.max_restarts, "max_restarts", "PET_MAX_RESTARTS"))
            options_.max_restarts = whole_number(restarts, 0, 1'000'000);
        if (const Given seconds{flags_.shutdown_timeout, "--shutdown_timeout"})
            options_.shutdown_timeout = std::chrono::seconds(whole_number(seconds, 0, most_seconds));
        std::istringstream settings(flags_.rdzv_conf);
        for (std::string setting; std::getline(settings, setting, ',');) {
            const std::size_t equals = setting.find('=');
            const std::string name = setting.substr(0, equals);
            if (equals == std::string::npos)
                throw UsageError(fmt::format("--rdzv_conf has \"{}\".", setting), "Write NAME=VALUE,….");
            const Given value{setting.substr(equals + 1), "--rdzv_conf " + name};
            if (name == "join_timeout" || name == "timeout")
                options_.join_timeout = std::chrono::seconds(whole_number(value, 1, most_seconds));
            else
                options_.remarks.push_back(
                    fmt::format("--rdzv_conf {} has no effect. Nodes meet in one way, whose only setting is "
                                "join_timeout.",
                                name));
        }
    }

    void read_logs() {
        if (!flags_.log.empty() && !flags_.log_dir.empty())
            throw UsageError("--log and --log_dir are given.", "Use one of them; --log_dir makes both logs.");
        options_.log_folder = flags_.log_dir;
        options_.log = flags_.log_dir.empty() ? std::filesystem::path(flags_.log)
                                              : std::filesystem::path(flags_.log_dir) / "launch.log";
        if (flags_.redirects == "3" && !flags_.log_dir.empty())
            options_.files_only = true;
        else if (!flags_.redirects.empty() && flags_.redirects != "0")
            options_.remarks.push_back(fmt::format(
                "--redirects {} has no effect. Both streams of all processes (3) can be kept off the "
                "terminal, with --log_dir.",
                flags_.redirects));
        std::istringstream words(flags_.mpirun_args);
        for (std::string word; words >> word;) options_.mpirun_arguments.push_back(word);
    }

    void read_program() {
        options_.program = flags_.words;
        options_.own_command = !flags_.exec;
        if (options_.program.empty())
            throw UsageError("Nothing to start is given.",
                             "Write run_clm and its arguments after the flags, or --exec and a program.");
        std::string& first = options_.program.front();
        if (first.starts_with("-"))
            throw UsageError(fmt::format("The flag {} is unknown.", first),
                             "Flags of run_clm belong after run_clm.");
        if (flags_.exec) return;
        constexpr std::array<std::string_view, 3> commands{"run_clm", "run_llama_nxd", "sft"};
        for (const std::string_view command : commands) {
            if (first == command) return;
            const std::string name = first.substr(first.find_last_of(flags_.module ? "." : "/") + 1);
            if (name != fmt::format("{}{}", command, flags_.module ? "" : ".py")) continue;
            options_.remarks.push_back(fmt::format("{} is drover's own {}.", first, command));
            first = command;
            return;
        }
        throw UsageError(fmt::format("\"{}\" is not a command that runs on several processes.", first),
                         did_you_mean(first, std::vector<std::string>(commands.begin(), commands.end()), "",
                                      "run_clm, run_llama_nxd and sft do (run_clm.py and the like mean the "
                                      "same); --exec starts any program."));
    }

    static constexpr int most_nodes = 65536, most_processes = 65536, most_seconds = 10'000'000;
    static constexpr std::size_t most_id_bytes = 1024;

    const LaunchFlags& flags_;
    const LaunchEnvironmentVariables& environment_;
    LaunchOptions options_{};
};

}  // namespace

LaunchOptions read_launch_options(const LaunchFlags& flags, const LaunchEnvironmentVariables& environment) {
    return Reader(flags, environment).read();
}

}  // namespace drover
