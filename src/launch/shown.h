#pragma once

#include <string>
#include <string_view>

namespace drover {

/// Text from the network made safe for a terminal: control characters and invalid UTF-8 are written as \xNN,
/// so that nothing in it can control the terminal or pass for another line.
std::string shown_text(std::string_view text);
/// The same, keeping line ends and tabs, for output of several lines.
std::string shown_lines(std::string_view text);

}  // namespace drover
