#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "args/argument.h"
#include "args/arguments.h"

namespace drover {

/// A row of the table of environment variables.
struct EnvironmentVariable {
    std::string_view name;    ///< a '*' at the end stands for any ending
    std::string_view sets{};  ///< the argument that it sets unless the command line does; empty: none
    std::string_view meaning;
    Standing standing = Standing::acts;
    std::string_view note{};  ///< the line printed when it is set and is only explained
};

std::span<const EnvironmentVariable> environment_table();

/// Variables by name. Empty ones count as not set.
using Environment = std::map<std::string, std::string, std::less<>>;

/// This process's variables that the table knows.
Environment read_environment();

/// Sets the arguments that the variables stand for and that neither command line nor file has set, and adds
/// the explanations. UsageError names a variable whose value is wrong.
void apply_environment(Arguments& arguments, const Environment& environment);

/// Whether a variable is set to a number other than 0 or a word for yes.
bool is_on(const Environment& environment, std::string_view name);

}  // namespace drover
