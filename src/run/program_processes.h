#pragma once

#include <functional>
#include <string_view>

#include "run/processes.h"

/// The processes of a program that uses the library. Its work comes in several calls, but MPI can be started
/// only once, so the first call that needs the other processes starts it, and the end of the program shuts it
/// down.
namespace drover {

/// This process and those that a launcher started with it. The first call is collective if there are others.
/// The result lives until the program ends.
const Processes& program_processes(const WorldOptions& waits);
/// Error unless these are the options of the first call.
void check_waits(const Processes& processes, const WorldOptions& waits);

/// Does the work named by `call` ("train()") in all processes at the same time. If there are several and the
/// work throws in one, or they make different calls, one of them shows why on standard error and all end, as
/// under `drover run_clm`: if an exception were caught in one process, the others would wait for it forever.
/// A single process throws.
void in_all_processes(std::string_view call, const std::function<void()>& work);

}  // namespace drover
