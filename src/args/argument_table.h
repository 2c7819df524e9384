#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "args/argument.h"

namespace drover {

/// Related arguments under one heading of the help text.
struct ArgumentGroup {
    std::string_view name;  ///< one word, for `--help NAME`; no argument has it
    std::string_view title;
    std::string_view introduction;
    std::span<const Argument> arguments;
};

/// An alternative name of an argument.
struct ArgumentAlias {
    std::string_view name;
    std::string_view stands_for;
};

/// The arguments of a command. Parsing, help, the record of a run's settings and the command's page in docs/
/// are generated from it.
class ArgumentTable {
  public:
    /// `command` is what follows `drover`. Groups and aliases must outlive the table.
    ArgumentTable(std::string_view command, std::span<const ArgumentGroup> groups,
                  std::span<const ArgumentAlias> aliases);

    std::string_view command() const { return command_; }
    std::span<const ArgumentGroup> groups() const { return groups_; }
    std::span<const ArgumentAlias> aliases() const { return aliases_; }

    /// The group that has the argument, which is in the table.
    const ArgumentGroup& group_of(const Argument& argument) const;

    /// The row of an argument by its primary name; nullptr if there is none.
    const Argument* find(std::string_view name) const;
    /// The primary name for a name or alias; empty if there is none.
    std::string_view first_name_of(std::string_view name) const;
    /// Every name that can be written on a command line: arguments, aliases and the `no_` forms of booleans.
    std::span<const std::string> names() const { return names_; }

  private:
    std::string_view command_;
    std::span<const ArgumentGroup> groups_;
    std::span<const ArgumentAlias> aliases_;
    std::unordered_map<std::string_view, const Argument*> index_;
    std::vector<std::string> names_;
};

const ArgumentTable& run_clm_table();
const ArgumentTable& run_llama_nxd_table();
const ArgumentTable& sft_table();
/// The table of a command; nullptr if it has none.
const ArgumentTable* table_of_command(std::string_view command);

// The groups of run_clm, each in its own file.
std::span<const Argument> model_arguments();
std::span<const Argument> peft_arguments();
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
std::span<const Argument> hub_arguments();
std::span<const Argument> explained_arguments();
std::span<const Argument> neuron_arguments();
/// Those of supervised fine-tuning that run_clm and sft share.
std::span<const Argument> sft_arguments();
/// The same with what only run_clm needs.
std::span<const Argument> run_clm_sft_arguments();

}  // namespace drover
