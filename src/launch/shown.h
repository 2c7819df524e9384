#pragma once

#include <string>
#include <string_view>

namespace drover {

/// What came over the network, fit for a terminal: control characters and what is not UTF-8 are written as
/// \xNN, so that nothing in it can steer the terminal or pass for another line.
std::string shown_text(std::string_view text);
/// The same with line ends and tabs as they are, for output of several lines.
std::string shown_lines(std::string_view text);

}  // namespace drover
