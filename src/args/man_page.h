#pragma once

#include <string>
#include <string_view>

namespace drover {

class ArgumentTable;

/// The page of the manual, in roff, of a command with a table of arguments. `version` is the program's.
std::string man_page(const ArgumentTable& table, std::string_view version);

}  // namespace drover
