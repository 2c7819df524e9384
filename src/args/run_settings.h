#pragma once

#include "args/parse_arguments.h"
#include "run/settings/run_settings.h"

namespace drover {

/// The settings of a run from a command line of `drover run_clm`. UsageError if the arguments request
/// something unavailable.
RunSettings run_settings(const RunArguments& run);

/// Arguments that change the run when they change: a resumed run compares them with those of its checkpoint.
/// (Those kept in trainer_state.json are compared from there.)
std::span<const std::string_view> arguments_compared_on_resume();

}  // namespace drover
