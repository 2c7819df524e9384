#include "comm/mpi/mpi_world.h"

#include "comm/mpi/module_interface.h"
#include "core/program_module.h"

namespace drover {

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
    const ModuleUse mpi{
        .name = "mpi",
        .version = mpi_module_version,
        .impossible = "MPI, through which the processes find each other, cannot be used",
        .remedy =
            "Install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin) and keep drover_mpi.so "
            "beside the program, or start one process, without mpirun or srun."};
    const auto make = mpi.function<decltype(drover_make_mpi_transport)>("drover_make_mpi_transport");
    return std::make_unique<World>(
        [make, deadline = options.deadline] { return std::unique_ptr<Transport>(make(deadline)); }, options);
}

}  // namespace drover
