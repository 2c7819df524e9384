#pragma once

#include <string_view>

namespace drover {

/// Whether a variable tells a process its place in an MPI job: of mpirun or of srun with PMIx. Parameters that
/// users set (OMPI_MCA_btl and so on) do not.
bool is_of_mpi_job(std::string_view variable);

/// Removes these variables from the environment. Where an outer mpirun starts a launcher on each node, this
/// launcher's own mpirun would refuse to run, or its processes would look for the outer job.
void leave_outer_mpi_job();

}  // namespace drover
