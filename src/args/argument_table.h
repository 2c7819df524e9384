#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "args/argument.h"

namespace drover {

/// Related arguments under one heading of the help text.
struct ArgumentGroup {
    std::string_view title;
    std::string_view introduction;
    std::span<const Argument> arguments;
};

/// An alternative name of an argument.
struct ArgumentAlias {
    std::string_view name;
    std::string_view stands_for;
};

/// Every argument of `drover run_clm`, by group. Parsing, help, training_args.json and docs/run_clm.md are
/// generated from it.
std::span<const ArgumentGroup> argument_groups();
std::span<const ArgumentAlias> argument_aliases();

/// The row of an argument by its primary name; nullptr if there is none.
const Argument* find_argument(std::string_view name);
/// The primary name for a name or alias; empty if there is none.
std::string_view first_name_of(std::string_view name);

/// Every name that can be written on a command line: arguments, aliases and the `no_` forms of booleans.
std::span<const std::string> all_argument_names();

// The groups, each in its own file.
std::span<const Argument> model_arguments();
std::span<const Argument> data_arguments();
std::span<const Argument> optimization_arguments();
std::span<const Argument> evaluation_arguments();
std::span<const Argument> logging_arguments();
std::span<const Argument> saving_arguments();
std::span<const Argument> precision_arguments();
std::span<const Argument> loading_arguments();
std::span<const Argument> parallel_arguments();
std::span<const Argument> run_arguments();
std::span<const Argument> profile_arguments();
std::span<const Argument> explained_arguments();
std::span<const Argument> neuron_arguments();

}  // namespace drover
