#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace drover {

/// A local path as it is, otherwise the snapshot of a Hub repository in `cache` (empty: the user's). `what`
/// names the source in the Error, which lists where it looked.
std::filesystem::path find_pretrained(const std::string& name, std::string_view what,
                                      const std::filesystem::path& cache = {},
                                      std::string_view revision = "main");

}  // namespace drover
