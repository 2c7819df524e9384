#pragma once

#include "args/parse_arguments.h"
#include "run/settings/run_settings.h"

namespace drover {

/// What a command line of `drover run_clm` asks for, as the settings of a run. With `list_all` the listing
/// for the log has every setting, not only those that are not at their default. UsageError where arguments
/// ask for what is not available.
RunSettings run_settings(const RunArguments& run, bool list_all);

/// Arguments that make another run of it when they change: a resumed run compares them with those of its
/// checkpoint. (Those that trainer_state.json keeps are compared from there.)
std::span<const std::string_view> arguments_compared_on_resume();

}  // namespace drover
