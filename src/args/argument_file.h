#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "args/arguments.h"
#include "core/json.h"

/// Files with arguments by name: `drover run_clm arguments.json …`, `… arguments.yaml …`, and TRL's
/// `--config FILE` of sft.
namespace drover {

struct ArgumentFile {
    std::string name;
    Json values;                                     ///< an object
    std::map<std::string, int, std::less<>> lines;   ///< of its keys
    std::map<std::string, std::string> variables{};  ///< environment variables: `env` of a YAML file
};

/// Reads a file's text; `name` ends in .json for JSON, and anything else is YAML. UsageError for what is no
/// list of arguments.
ArgumentFile parse_argument_file(const ArgumentTable& table, std::string_view text, const std::string& name);

/// Takes the name of a file out of the words of a command, of which it is the first, and reads the file.
/// UsageError if there are two.
std::optional<ArgumentFile> take_argument_file(const ArgumentTable& table, std::vector<std::string>& words);

/// Sets the arguments. A value that is null or equal to the default counts as not given, so that a
/// training_args.json can be used. UsageError names file, line and key.
void set_from_file(Arguments& arguments, const ArgumentFile& file);

/// Sets the environment variables of the file in this process.
void set_variables(const ArgumentFile& file);

}  // namespace drover
