#pragma once

#include <string>

namespace drover {

class ArgumentTable;

/// The help of a command: every argument with its kind, default and description, by group, at most 100
/// columns wide.
std::string help_text(const ArgumentTable& table);

/// The command's page in docs/.
std::string markdown_page(const ArgumentTable& table);

}  // namespace drover
