#pragma once

namespace drover {

/// Error when srun started this process in a way in which the MPI library cannot join it with the others:
/// Open MPI finds them through PMIx (srun --mpi=pmix), and through PMI-1 or PMI-2 only if built for it. It
/// would otherwise end the process with a page of text, or run as a world of one.
void refuse_srun_without_pmix(const char* mpi_library);

}  // namespace drover
