#pragma once

#include <string>

namespace drover {

/// What to do about other programs that take so much of the machine that `threads` threads of this one wait
/// for each other; empty where they do not, and where waiting threads soon sleep, as they do unless the user
/// wants it otherwise (process_start.h). Threads that wait in a loop take the processors away from those they
/// wait for.
std::string busy_machine_hint(int threads);

}  // namespace drover
