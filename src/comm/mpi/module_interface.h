#pragma once

#include <chrono>

/// The interface between the program and the module drover_mpi.so. Both come from one build.
namespace drover {

class Transport;

/// Incremented whenever Transport or a type in it changes.
inline constexpr int mpi_module_version = 1;

}  // namespace drover

extern "C" {
int drover_mpi_module_version();
/// Starts MPI on the calling thread, which alone may use the transport. Throws drover::Error, also when MPI
/// was started before; the caller owns what is returned. close() waits for the other ranks for twice the
/// deadline.
drover::Transport* drover_make_mpi_transport(std::chrono::milliseconds deadline);
}
