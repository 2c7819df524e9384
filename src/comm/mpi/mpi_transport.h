#pragma once

#include <chrono>
#include <memory>

#include "comm/transport.h"

namespace drover {

/// Starts MPI on the calling thread, which alone may use the transport. Error when it was started before.
/// close() waits for the other ranks for twice the deadline.
std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline);

}  // namespace drover
