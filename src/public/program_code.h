#pragma once

#include <functional>
#include <string_view>

namespace drover::v1 {

/// Calls code of the program, named by `what` ("A callback"). Its exceptions reach the program as they are if
/// there is one process. With several, where they are shown instead, those that are not Errors become one.
void call_program(std::string_view what, bool has_other_processes, const std::function<void()>& code);

}  // namespace drover::v1
