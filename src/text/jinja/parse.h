#pragma once

#include <string_view>

#include "text/jinja/syntax_tree.h"

namespace drover::jinja {

/// Reads a template. Error, with `name` and the line, if it is not Jinja as we know it.
SyntaxTree parse_template(std::string_view source, std::string_view name);

/// Part of parse_template: finds the variable of every name, by Jinja's rules of scope, and refuses filters
/// and tests that do not exist, unless they are inside of a condition, which may never come true.
void bind_names(SyntaxTree& tree, std::string_view name);

}  // namespace drover::jinja
