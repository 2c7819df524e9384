#pragma once

#include <string_view>

#include "args/argument_table.h"

namespace drover {

/// The argument that a flag on the command line names.
struct NamedArgument {
    const Argument* argument;
    bool negated;  ///< `--no_x`
};

/// `written` is what follows the two hyphens: an argument's name or alias with hyphens or underscores, its
/// `no_` form, or a prefix that is unique. UsageError, listing the candidates if several match, or the
/// nearest name if none does.
NamedArgument find_written_argument(const ArgumentTable& table, std::string_view written);

/// The argument that a key of a file names: a whole name or alias, with hyphens or underscores; nullptr if
/// there is none.
const Argument* argument_of_key(const ArgumentTable& table, std::string_view key);
/// The same; UsageError, which begins with `where`, if there is none.
const Argument& find_key_argument(const ArgumentTable& table, std::string_view key, std::string_view where);

}  // namespace drover
