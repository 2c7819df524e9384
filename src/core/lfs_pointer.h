#pragma once

#include <string_view>

namespace drover {

/// Error, with `git lfs pull` as remedy, when a file that starts with `first_bytes` is only a pointer to the
/// real one.
void refuse_lfs_pointer(std::string_view first_bytes, std::string_view where);

}  // namespace drover
