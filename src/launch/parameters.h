#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Open MPI parameters among the words of a command line: `--mca NAME VALUE` and the like.
namespace drover {

/// Whether this word is followed by the name and value of a parameter.
bool is_parameter_flag(std::string_view word);

/// The values that the words give to the parameter with exactly this name.
std::vector<std::string> values_of_parameter(const std::vector<std::string>& words, std::string_view name);

}  // namespace drover
