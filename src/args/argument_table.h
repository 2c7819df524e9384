#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "args/argument.h"

namespace drover {

/// Arguments that belong together, under one heading of the help text.
struct ArgumentGroup {
    std::string_view title;
    std::string_view introduction;
    std::span<const Argument> arguments;
};

/// A second name of an argument.
struct ArgumentAlias {
    std::string_view name;
    std::string_view stands_for;
};

/// Every argument that `drover run_clm` takes, group by group. Parsing, help, training_args.json and
/// docs/run_clm.md are made from it.
std::span<const ArgumentGroup> argument_groups();
std::span<const ArgumentAlias> argument_aliases();

/// The row of an argument under its first name; nullptr when there is none.
const Argument* find_argument(std::string_view name);
/// The first name of what `name` is a name of; empty when there is none.
std::string_view first_name_of(std::string_view name);

/// Every name that can be written on a command line: arguments, aliases and the `no_` forms of booleans.
std::span<const std::string> all_argument_names();

// The groups, one file each.
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
