#pragma once

#include <string_view>

#include "args/argument.h"

namespace drover {

/// What a flag on a command line names.
struct NamedArgument {
    const Argument* argument;
    bool negated;  ///< `--no_x`
};

/// `written` is what follows the two hyphens: an argument's name or alias with hyphens or underscores, its
/// `no_` form, or a beginning that fits only one argument. UsageError that names the candidates when it fits
/// several, and the nearest name when it fits none.
NamedArgument find_written_argument(std::string_view written);

/// The same for a key of a JSON file, which must be a whole name.
const Argument& find_key_argument(std::string_view key, std::string_view where);

}  // namespace drover
