#pragma once

#include <memory>

#include "comm/world.h"

namespace drover {

/// This process as a rank of the world that mpirun or srun started (a world of one without them). Starts MPI,
/// on the communication thread, which alone calls it; so this works once per process. Destroying the world
/// shuts MPI down in order and waits for the other ranks. After a failure MPI is left as it is, and the
/// process must end with a status other than 0, so that the launcher ends the other processes.
std::unique_ptr<World> make_mpi_world(const WorldOptions& options = {});

}  // namespace drover
