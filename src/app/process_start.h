#pragma once

/// What main() does before anything else.
namespace drover {

/// Opens /dev/null in place of a standard descriptor that the program was started without (`>&-`): the next
/// file to be opened would get its number, and log lines would land in a checkpoint.
void open_standard_descriptors();

/// Lets OpenMP's waiting threads spin for a short time and then sleep. libgomp reads its variables before
/// main(), so this starts the program once more in the same process, with GOMP_SPINCOUNT set; it then returns
/// at once. It also returns where the user said how threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT), for
/// commands that do not compute, and where the program cannot be started again.
void choose_thread_waits(char** arguments);

}  // namespace drover
