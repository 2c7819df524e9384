#include "comm/mpi/mpi_world.h"

#include <dlfcn.h>
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
    const ProgramModule module = load_program_module(mpi_module_name, "DROVER_MPI_MODULE");
    if (module.handle == nullptr) fail(module.reason);
    const auto version = reinterpret_cast<decltype(&drover_mpi_module_version)>(
        dlsym(module.handle, "drover_mpi_module_version"));
    const auto make = reinterpret_cast<MakeMpiTransport>(dlsym(module.handle, "drover_make_mpi_transport"));
    if (version == nullptr || make == nullptr || version() != mpi_module_version)
        fail(fmt::format("{} belongs to another version of the program", module.place));
    return make;
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
