#pragma once

namespace drover {

/// Error when srun started this process in a way through which the MPI library cannot join it with the
/// others: Open MPI finds them through PMIx (srun --mpi=pmix), and through PMI-1 or PMI-2 only where it was
/// built so. It would end the process with a page of text, or be alone.
void refuse_srun_without_pmix(const char* mpi_library);

}  // namespace drover
