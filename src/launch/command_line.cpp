#include "launch/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "args/environment_table.h"
#include "core/error.h"
#include "core/text_file.h"

namespace drover {
namespace {

using Words = std::vector<std::string>;

void add(Words& words, std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
}

bool has(const Words& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

bool mentions(const Words& words, std::string_view part) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return word.find(part) != std::string::npos; });
}

/// mpirun splits the agent's command at spaces, and lists of agents at colons.
std::string agent_command(const std::filesystem::path& drover) {
    if (drover.native().find_first_of(" :,\t\n\"'\\") != std::string::npos)
        throw Error(fmt::format("mpirun cannot be told the place of this program, {}.", drover.native()),
                    "Put it, or a link to its folder, where the path has no space, colon, comma or quote.");
    return drover.native() + " launch-agent";
}

/// Flag that sets a parameter of mpirun itself.
std::string mpirun_parameter(const MpirunPlan& plan) {
    return plan.major_version >= 5 ? "--prtemca" : "--mca";
}

/// The machines were chosen by the user. A batch system may have other names for them, and counts tasks as
/// slots: one, where each machine runs one launcher.
void ignore_batch_system(Words& words, const MpirunPlan& plan) {
    add(words, {mpirun_parameter(plan), "ras", "^slurm,gridengine,tm,lsf"});
}

/// Daemons on the other nodes are started by the launchers waiting there. They stay in the foreground, so
/// that the launchers see them end. All are started from node 0, the only one with the connections.
void add_nodes(Words& words, const MpirunPlan& plan) {
    std::string hosts;
    int processes = 0;
    for (const LaunchHost& node : plan.nodes) {
        hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", node.name, node.processes);
        processes += node.processes;
    }
    const bool renamed = plan.major_version >= 5;
    const std::string parameter = mpirun_parameter(plan), starter = renamed ? "ssh" : "rsh";
    add(words, {"-np", std::to_string(processes), "--host", hosts, "--leave-session-attached"});
    add(words, {parameter, "plm", starter});
    add(words, {parameter, fmt::format("plm_{}_agent", starter), agent_command(plan.drover)});
    add(words, {parameter, fmt::format("plm_{}_no_tree_spawn", starter), "1"});
    ignore_batch_system(words, plan);
    if (plan.network.empty()) return;
    add(words, {parameter, renamed ? "prte_if_include" : "oob_tcp_if_include", plan.network});
    add(words, {"--mca", "btl_tcp_if_include", plan.network});
}

}  // namespace

std::vector<std::string> mpirun_words(const MpirunPlan& plan) {
    Words words{"mpirun"};
    if (plan.as_root) words.push_back("--allow-run-as-root");
    std::string mapping = "slot";
    if (!plan.nodes.empty()) {
        add_nodes(words, plan);
    } else if (!plan.hostfile.empty()) {
        add(words, {"--hostfile", plan.hostfile.native()});
        if (plan.processes > 0) {
            add(words, {"-np", std::to_string(plan.processes * plan.hostfile_machines)});
            mapping = fmt::format("ppr:{}:node", plan.processes);
        }
    } else {
        add(words, {"-np", std::to_string(plan.processes)});
        ignore_batch_system(words, plan);
    }
    // Processes on one machine communicate through shared memory.
    if (plan.one_machine && !plan.connections_chosen && values_of_parameter(plan.more, "btl").empty())
        add(words, {"--mca", "btl", "^tcp,ofi,openib"});
    if (plan.oversubscribe) words.push_back("--oversubscribe");
    if (!mentions(plan.more, "map-by")) add(words, {"--map-by", mapping});
    // Processes share a machine by their number of threads; bound to one core, all threads would run there.
    if (!mentions(plan.more, "bind-to")) add(words, {"--bind-to", "none"});
    for (const std::string& name : plan.variables)
        if (!has(plan.more, name)) add(words, {"-x", name});
    words.insert(words.end(), plan.more.begin(), plan.more.end());
    add(words, {plan.drover.native(), "launch-process"});
    if (!plan.preloaded.empty()) add(words, {"--preloaded", plan.preloaded});
    if (!plan.log_folder.empty()) add(words, {"--log_dir", plan.log_folder.native()});
    if (plan.files_only) words.push_back("--files_only");
    words.insert(words.end(), plan.program.begin(), plan.program.end());
    return words;
}

std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file) {
    std::vector<LaunchHost> hosts;
    std::istringstream lines(read_text_file(file));
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        LaunchHost host{.name = "", .processes = 0};
        if (!(words >> host.name)) continue;
        for (std::string word; words >> word;) {
            if (!word.starts_with("slots=")) continue;
            const char* end = word.data() + word.size();
            const auto [read, problem] = std::from_chars(word.data() + 6, end, host.processes);
            if (problem != std::errc() || read != end || host.processes < 1)
                throw Error(fmt::format("{} gives the host {} \"{}\".", file.native(), host.name, word),
                            "Write a whole number after slots=.");
        }
        const auto same = std::find_if(hosts.begin(), hosts.end(),
                                       [&](const LaunchHost& other) { return other.name == host.name; });
        if (same == hosts.end())
            hosts.push_back(host);
        else
            same->processes = std::max(1, same->processes) + std::max(1, host.processes);
    }
    if (hosts.empty())
        throw Error(fmt::format("The hostfile {} names no host.", file.native()), "Write a host per line.");
    return hosts;
}

std::vector<std::string> variables_to_pass(
    const std::map<std::string, std::string, std::less<>>& environment) {
    constexpr std::array<std::string_view, 5> beginnings{"DROVER_", "OMP_", "NCCL_", "CUDA_", "HF_"};
    const auto acts = [](std::string_view name) {
        return std::ranges::any_of(environment_table(), [&](const EnvironmentVariable& variable) {
            return variable.name == name && variable.standing == Standing::acts;
        });
    };
    std::vector<std::string> names;
    for (const auto& [name, value] : environment)
        if (acts(name) || std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
                return name.starts_with(beginning);
            }))
            names.push_back(name);
    return names;
}

bool is_parameter_flag(std::string_view word) {
    constexpr std::array<std::string_view, 7> flags{"-mca",   "--mca",     "-gmca",    "--gmca",
                                                    "--omca", "--prtemca", "--pmixmca"};
    return std::ranges::find(flags, word) != flags.end();
}

std::vector<std::string> values_of_parameter(const std::vector<std::string>& words, std::string_view name) {
    std::vector<std::string> values;
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
        if (!is_parameter_flag(words[i])) continue;
        if (words[i + 1] == name) values.push_back(words[i + 2]);
        i += 2;
    }
    return values;
}

}  // namespace drover
