#include "app/launch_daemon_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/launch_shown.h"
#include "core/error.h"

namespace drover {
namespace {

constexpr std::array<std::string_view, 5> flags{"--leave-session-attached", "--allow-run-as-root",
                                                "--uniform-nodes", "--debug-daemons", "--debug"};
constexpr std::array<std::string_view, 5> introductions{"-mca", "--mca", "--prtemca", "--pmixmca", "--omca"};

/// Parameters without which there is no daemon, and those that mpirun makes of the launcher's own words.
constexpr std::array<std::string_view, 29> parameters{"ess",
                                                      "ess_base_jobid",
                                                      "ess_base_nspace",
                                                      "ess_base_num_procs",
                                                      "ess_base_vpid",
                                                      "orte_hnp_uri",
                                                      "prte_hnp_uri",
                                                      "orte_parent_uri",
                                                      "prte_parent_uri",
                                                      "orte_node_regex",
                                                      "orte_leave_session_attached",
                                                      "orte_tag_output",
                                                      "orte_timestamp_output",
                                                      "orte_debug",
                                                      "orte_debug_daemons",
                                                      "orte_report_bindings",
                                                      "plm",
                                                      "plm_rsh_no_tree_spawn",
                                                      "plm_ssh_no_tree_spawn",
                                                      "ras",
                                                      "pmix",
                                                      "pmix_session_server",
                                                      "rmaps_base_mapping_policy",
                                                      "rmaps_base_oversubscribe",
                                                      "rmaps_base_no_schedule_local",
                                                      "hwloc_base_binding_policy",
                                                      "hwloc_base_report_bindings",
                                                      "mca_base_component_show_load_errors",
                                                      "PREFIXES"};
/// And those that choose networks, or say how much is reported.
constexpr std::array<std::string_view, 3> endings{"_if_include", "_if_exclude", "_verbose"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
    throw Error(fmt::format("Open MPI's daemon is not started with {}.", what), remedy);
}

bool is_agent(std::string_view name) {
    return name == "plm_rsh_agent" || name == "plm_ssh_agent";
}

bool is_allowed(const std::string& name, const DaemonRules& rules) {
    if (std::ranges::find(parameters, name) != parameters.end()) return true;
    if (std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); }))
        return true;
    if (std::ranges::find(rules.mpirun_arguments, name) != rules.mpirun_arguments.end()) return true;
    return std::ranges::any_of(std::array{"OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_"},
                               [&](const char* beginning) { return rules.is_set(beginning + name); });
}

}  // namespace

bool is_daemon_name(std::string_view name) {
    return name == "orted" || name == "prted";
}

void check_daemon_words(const std::vector<std::string>& words, const DaemonRules& rules) {
    if (words.empty() || !is_daemon_name(words.front()))
        throw Error(
            fmt::format("\"{}\" is not Open MPI's daemon.", words.empty() ? "" : shown_text(words.front())),
            "Nothing else is started.");
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (std::ranges::find(flags, words[i]) != flags.end()) continue;
        if (std::ranges::find(introductions, words[i]) == introductions.end() || i + 2 >= words.size())
            refuse(fmt::format("\"{}\"", shown_text(words[i])),
                   "Look at the settings of mpirun on node 0 (--mpirun_args, OMPI_MCA_…).");
        const std::string &name = words[i + 1], &value = words[i + 2];
        i += 2;
        if (is_agent(name) ? value != rules.drover.native() + " launch-agent" : !is_allowed(name, rules))
            refuse(fmt::format("the parameter {} = \"{}\", which comes from node 0 alone", shown_text(name),
                               shown_text(value)),
                   is_agent(name) ? "This program must be at the same place on every node."
                                  : "Set it on this node too (--mpirun_args, or OMPI_MCA_ and its name).");
    }
}

}  // namespace drover
