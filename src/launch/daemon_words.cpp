#include "launch/daemon_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "launch/command_line.h"
#include "launch/shown.h"

namespace drover {
namespace {

constexpr std::array<std::string_view, 5> flags{"--leave-session-attached", "--allow-run-as-root",
                                                "--uniform-nodes", "--debug-daemons", "--debug"};

/// Parameters that every daemon needs, and those that mpirun derives from the launcher's own words and from
/// flags that place processes or display something. None of them names a file or a module.
constexpr std::array<std::string_view, 47> parameters{"ess",
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
                                                      "orte_display_alloc",
                                                      "orte_display_devel_alloc",
                                                      "orte_xml_output",
                                                      "orte_enable_recovery",
                                                      "plm",
                                                      "plm_rsh_no_tree_spawn",
                                                      "plm_ssh_no_tree_spawn",
                                                      "ras",
                                                      "pmix",
                                                      "pmix_session_server",
                                                      "rmaps_base_mapping_policy",
                                                      "rmaps_base_ranking_policy",
                                                      "rmaps_base_cpus_per_rank",
                                                      "rmaps_base_display_map",
                                                      "rmaps_base_display_devel_map",
                                                      "rmaps_base_display_diffable_map",
                                                      "rmaps_base_display_topo_with_map",
                                                      "rmaps_base_oversubscribe",
                                                      "rmaps_base_no_oversubscribe",
                                                      "rmaps_ppr_pernode",
                                                      "rmaps_ppr_n_pernode",
                                                      "rmaps_ppr_n_persocket",
                                                      "rmaps_dist_device",
                                                      "rmaps_base_no_schedule_local",
                                                      "hwloc_base_binding_policy",
                                                      "hwloc_base_report_bindings",
                                                      "hwloc_base_use_hwthreads_as_cpus",
                                                      "hwloc_base_cpu_set",
                                                      "hwloc_base_cpu_list",
                                                      "mca_base_component_show_load_errors",
                                                      "PREFIXES"};
/// Also those that choose networks or set the verbosity.
constexpr std::array<std::string_view, 3> endings{"_if_include", "_if_exclude", "_verbose"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
    throw Error(fmt::format("Open MPI's daemon is not started with {}.", what), remedy);
}

bool is_agent(std::string_view name) {
    return name == "plm_rsh_agent" || name == "plm_ssh_agent";
}

/// Whether this node's user has also given the parameter this value.
bool is_set_here(const std::string& name, const std::string& value, const DaemonRules& rules) {
    const std::vector<std::string> given = values_of_parameter(rules.mpirun_arguments, name);
    if (std::ranges::find(given, value) != given.end()) return true;
    if (name == "orte_output_filename") {
        const auto& words = rules.mpirun_arguments;
        const auto flag = std::ranges::find_if(words, [](const std::string& word) {
            return word == "--output-filename" || word == "-output-filename";
        });
        if (flag != words.end() && flag + 1 != words.end() && flag[1] == value) return true;
    }
    return std::ranges::any_of(std::array{"OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_"}, [&](const char* beginning) {
        return rules.variable(beginning + name) == value;
    });
}

bool is_allowed(const std::string& name, const std::string& value, const DaemonRules& rules) {
    if (std::ranges::find(parameters, name) != parameters.end()) return true;
    if (std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); }))
        return true;
    return is_set_here(name, value, rules);
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
        if (!is_parameter_flag(words[i]) || i + 2 >= words.size())
            refuse(fmt::format("\"{}\"", shown_text(words[i])),
                   "Look at the settings of mpirun on node 0 (--mpirun_args, OMPI_MCA_…).");
        const std::string &name = words[i + 1], &value = words[i + 2];
        i += 2;
        if (is_agent(name) ? value != rules.drover.native() + " launch-agent"
                           : !is_allowed(name, value, rules))
            refuse(fmt::format("the parameter {} = \"{}\", which only node 0 has", shown_text(name),
                               shown_text(value)),
                   is_agent(name)
                       ? "This program must be at the same place on every node."
                       : "Set the same value on this node (--mpirun_args, or OMPI_MCA_ and its name).");
    }
}

}  // namespace drover
