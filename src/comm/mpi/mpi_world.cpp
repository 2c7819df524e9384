#include "comm/mpi/mpi_world.h"

#include <fmt/format.h>

#include "comm/mpi/module_interface.h"
#include "core/program_module.h"

namespace drover {
namespace {

using MakeMpiTransport = decltype(&drover_make_mpi_transport);

MakeMpiTransport load_mpi() {
    const auto fail = [](std::string_view why) {
        throw Error(fmt::format("MPI, through which the processes find each other, cannot be used: {}.", why),
                    "Install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin) and keep drover_mpi.so "
                    "beside the program, or start one process, without mpirun or srun.");
    };
    const ModuleFunction make =
        load_module_function(mpi_module_name, "DROVER_MPI_MODULE",
                             {"drover_mpi_module_version", mpi_module_version}, "drover_make_mpi_transport");
    if (make.address == nullptr) fail(make.reason);
    return reinterpret_cast<MakeMpiTransport>(make.address);
}

}  // namespace

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
    return std::make_unique<World>(
        [make = load_mpi(), deadline = options.deadline] {
            return std::unique_ptr<Transport>(make(deadline));
        },
        options);
}

}  // namespace drover
