#pragma once

#include <string_view>

namespace drover {

/// The script of `drover completion SHELL`, for bash, zsh or fish. What it offers it asks the program for, so
/// that it fits every version.
std::string_view completion_script(std::string_view shell);

}  // namespace drover
