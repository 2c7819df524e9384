#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/settings/run_settings.h"

namespace drover {

struct LaunchEnvironment;

/// The settings that a command's words ask for; nothing if they asked for help, which has been printed.
using ReadSettings = std::function<std::optional<RunSettings>(const LaunchEnvironment& launch)>;

/// Trains in this process and those that were started with it, by the settings that `read` returns. `command`
/// is its name, for messages.
void run_training_command(std::string_view command, const std::vector<std::string>& words,
                          const ReadSettings& read);

}  // namespace drover
