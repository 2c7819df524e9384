#include "comm/mpi/mpi_world.h"

#include "comm/mpi/mpi_transport.h"

namespace drover {

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
    return std::make_unique<World>([deadline = options.deadline] { return make_mpi_transport(deadline); },
                                   options);
}

}  // namespace drover
