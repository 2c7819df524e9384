#pragma once

#include <string>
#include <string_view>

#include "args/argument_table.h"

/// Arguments in words, for help, man pages, docs and errors.
namespace drover {

/// What may follow the flag: "integer", "yes|no", "no|steps|epoch"; "choice" where the list is long.
std::string kind_text(const Argument& argument);

/// The same for a sentence: "a whole number from 1 to 8", "yes or no", "one of no, steps or epoch".
std::string type_text(const Argument& argument);

/// The argument's help; with its choices where kind_text() does not have them.
std::string meaning_text(const Argument& argument);

/// "--lr, --rate", each in `quote`; empty if there are none.
std::string aliases_text(const ArgumentTable& table, const Argument& argument, std::string_view quote = "");

/// "acts", "several processes" or "explained".
std::string_view standing_text(Standing standing);

}  // namespace drover
