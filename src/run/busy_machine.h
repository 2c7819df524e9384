#pragma once

#include <string>

namespace drover {

/// A hint for the case that other programs load the machine so much that `threads` threads of this one wait
/// for each other. Empty if they do not, and if waiting threads soon sleep, which is the default
/// (process_start.h). Threads that wait in a loop take the processors away from the threads they wait for.
std::string busy_machine_hint(int threads);

}  // namespace drover
