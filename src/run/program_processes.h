#pragma once

#include <functional>
#include <string_view>

#include "run/processes.h"

/// The processes of a program that uses the library. Its work comes in several calls, but MPI can be started
/// only once: so the first call that needs the others starts it, and the end of the program ends it.
namespace drover {

/// This process and those that a launcher started with it. The first call is collective where there are
/// others. What is returned lives until the program ends.
const Processes& program_processes(const WorldOptions& waits);
/// Error unless these are what the first call was given.
void check_waits(const Processes& processes, const WorldOptions& waits);

/// Does the work that `call` names ("train()"), in all processes at the same time. Where there are others and
/// the work throws in one, or they come to different calls, one of them says why on standard error and all
/// end, as those of `drover run_clm` do: an exception would leave the others waiting for whatever catches it.
/// A process that is alone throws.
void in_all_processes(std::string_view call, const std::function<void()>& work);

}  // namespace drover
