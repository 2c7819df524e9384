#pragma once

#include <span>
#include <string>
#include <string_view>

#include "args/read_arguments.h"
#include "run/settings/run_settings.h"

/// Command lines of `drover run_llama_nxd`: words, files and variables become settings of a run.
namespace drover {

/// Reads the words, derives arguments from others, checks combinations, and collects explanations. UsageError
/// if something is wrong.
Arguments parse_nxd_arguments(std::span<const std::string> words, const ParseOptions& options = {});

/// The settings that the arguments ask for.
RunSettings nxd_run_settings(const Arguments& arguments);

/// Arguments that change the run when they change: a resumed run compares them with those of its checkpoint.
std::span<const std::string_view> nxd_arguments_compared_on_resume();

}  // namespace drover
