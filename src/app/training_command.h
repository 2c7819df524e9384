#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run/settings/run_settings.h"

namespace drover {

class ArgumentTable;
struct LaunchEnvironment;

/// The settings that a command's words ask for.
using ReadSettings = std::function<RunSettings(const LaunchEnvironment& launch)>;

/// Prints the help that the words of the command with this table ask for; otherwise trains in this process
/// and those that were started with it, by the settings that `read` returns.
void run_training_command(const ArgumentTable& table, const std::vector<std::string>& words,
                          const ReadSettings& read);

}  // namespace drover
