#pragma once

#include <string>

namespace drover {

/// The help of `drover run_clm`: every argument with its kind, default and description, by group, at most 100
/// columns wide.
std::string help_text();

/// The page docs/run_clm.md.
std::string markdown_page();

}  // namespace drover
