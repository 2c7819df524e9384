#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "args/argument.h"
#include "args/arguments.h"

namespace drover {

struct ArgumentFile;

/// A row of the table of environment variables.
struct EnvironmentVariable {
    std::string_view name;    ///< a final '*' matches any ending
    std::string_view sets{};  ///< the argument it sets unless the command line does; empty: none
    std::string_view meaning;
    Standing standing = Standing::acts;
    std::string_view note{};      ///< the line printed when it is set and is only explained
    std::string_view only_for{};  ///< the command it has this meaning for; empty: all

    constexpr bool is_for(std::string_view command) const {
        // sft has the arguments of run_clm.
        return only_for.empty() || only_for == (command == "sft" ? "run_clm" : command);
    }
    constexpr EnvironmentVariable of(std::string_view command) const {
        EnvironmentVariable copy = *this;
        copy.only_for = command;
        return copy;
    }
};

/// The variables of all commands; see EnvironmentVariable::only_for.
std::span<const EnvironmentVariable> environment_table();

/// Variables by name. Empty ones count as unset.
using Environment = std::map<std::string, std::string, std::less<>>;

/// This process's variables that are in the table.
Environment read_environment();

/// Sets the arguments of the variables that neither command line nor file has set, and adds the explanations.
/// `file`: that whose variables are among them, if there is one. UsageError names a variable whose value is
/// invalid.
void apply_environment(Arguments& arguments, const Environment& environment,
                       const ArgumentFile* file = nullptr);

/// Whether a variable is set to a nonzero number or a word for yes.
bool is_on(const Environment& environment, std::string_view name);

}  // namespace drover
