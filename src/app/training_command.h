#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "args/read_arguments.h"
#include "run/settings/run_settings.h"

namespace drover {

class ArgumentTable;

/// The settings that a command's words ask for. They do not name the file of arguments, if there is one: it
/// is in the options, and its variables are set.
using ReadSettings =
    std::function<RunSettings(std::span<const std::string> words, const ParseOptions& options)>;

/// Prints the help that the words of the command with this table ask for; otherwise trains in this process
/// and those that were started with it, by the settings that `read` returns.
void run_training_command(const ArgumentTable& table, const std::vector<std::string>& words,
                          const ReadSettings& read);

}  // namespace drover
