#pragma once

/// What main() does before anything else.
namespace drover {

/// Opens /dev/null for every standard descriptor that the program was started without (`>&-`). Otherwise the
/// next opened file would get its number, and log lines would end up in a checkpoint.
void open_standard_descriptors();

/// Makes OpenMP's waiting threads spin for a short time and then sleep. libgomp reads its variables before
/// main(), so this restarts the program in the same process with GOMP_SPINCOUNT set; the second time it
/// returns immediately. It also returns if the user set how threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT),
/// for commands that do not compute, and if the program cannot be restarted.
void choose_thread_waits(char** arguments);

}  // namespace drover
