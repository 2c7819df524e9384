#include "comm/mpi/module/slurm_start.h"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Open MPI 5 supports only PMIx. The plugins of 4 are beside its library, in a folder that distributions
/// name differently.
bool knows_older_pmi(const fs::path& mpi_library) {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string_view version(text.data());
    if (version.starts_with("Open MPI v5")) return false;
    if (!version.starts_with("Open MPI v4")) return true;  // unknown library: it may
    for (const char* const folder : {"openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"}) {
        const fs::path plugins = mpi_library.parent_path() / folder;
        if (!fs::exists(plugins / "mca_pmix_isolated.so")) continue;
        return fs::exists(plugins / "mca_pmix_s1.so") || fs::exists(plugins / "mca_pmix_s2.so");
    }
    return true;
}

}  // namespace

void refuse_srun_without_pmix(const char* mpi_library) {
    const bool by_srun = !variable("SLURM_STEP_ID").empty() && !variable("SLURM_PROCID").empty();
    const bool by_mpirun = !variable("OMPI_COMM_WORLD_RANK").empty() || !variable("PMIX_RANK").empty();
    if (!by_srun || by_mpirun || knows_older_pmi(mpi_library)) return;
    throw Error(fmt::format("srun started {} processes {}, so that this Open MPI cannot join them.",
                            variable("SLURM_NTASKS"),
                            variable("PMI_RANK").empty() ? "without --mpi" : "with --mpi=pmi2"),
                "Use srun --mpi=pmix (srun --mpi=list shows whether Slurm has it), or mpirun.");
}

}  // namespace drover
