#include "launch/outer_job.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace drover {

bool is_of_mpi_job(std::string_view variable) {
    if (variable.starts_with("PMIX_")) return !variable.starts_with("PMIX_MCA_");
    if (!variable.starts_with("OMPI_") || variable.starts_with("OMPI_ALLOW_")) return false;
    if (!variable.starts_with("OMPI_MCA_")) return true;
    constexpr std::array<std::string_view, 5> set_by_mpirun{"orte_", "ess", "pmix", "initial_wdir",
                                                            "mpi_oversubscribe"};
    const std::string_view parameter = variable.substr(std::string_view("OMPI_MCA_").size());
    for (const std::string_view beginning : set_by_mpirun)
        if (parameter.starts_with(beginning)) return true;
    return false;
}

void leave_outer_mpi_job() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::string_view name = text.substr(0, text.find('='));
        if (is_of_mpi_job(name)) names.emplace_back(name);
    }
    for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace drover
