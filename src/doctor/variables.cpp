#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "args/environment_table.h"
#include "doctor/sections.h"

namespace drover {
namespace {

/// Whether a run takes a setting from it: others concern only a launcher, the Hub or a cache.
bool gives_a_setting(std::string_view name) {
    const auto table = environment_table();
    return std::any_of(table.begin(), table.end(), [&](const EnvironmentVariable& variable) {
        return variable.name == name && !variable.sets.empty() && variable.is_for(run_clm_table().command());
    });
}

}  // namespace

ReportSection variables_section() {
    ReportSection section{.key = "variables", .title = "Environment variables"};
    std::vector<std::string> set;
    // One by one, so that each that is wrong is named.
    for (const auto& [name, value] : read_environment()) {
        if (value.empty()) continue;
        if (gives_a_setting(name)) set.push_back(name);
        try {
            Arguments arguments(run_clm_table());
            apply_environment(arguments, {{name, value}});
        } catch (const Error& error) {
            section.stopper(error);
        }
    }
    section.facts["set"] = set;
    if (!section.findings.empty()) return section;
    section.ok(set.empty() ? "None is set that a run takes a setting from."
                           : fmt::format("Runs take settings from these: {}.", fmt::join(set, ", ")));
    return section;
}

}  // namespace drover
