#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Parameters of Open MPI among the words of a command line: `--mca NAME VALUE` and its like.
namespace drover {

/// Whether a name and a value of a parameter follow this word.
bool is_parameter_flag(std::string_view word);

/// The values that the words give to the parameter of exactly this name.
std::vector<std::string> values_of_parameter(const std::vector<std::string>& words, std::string_view name);

}  // namespace drover
