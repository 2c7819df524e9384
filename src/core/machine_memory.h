#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace drover {

/// The host memory that this process may use: what is installed, or less where a container (its control
/// group) is limited.
std::size_t usable_memory();

/// The limit of the control group whose files are in `folder` (memory.max, or memory/memory.limit_in_bytes of
/// the older kind); absent when there is none.
std::optional<std::size_t> memory_limit_of_group(const std::filesystem::path& folder);

}  // namespace drover
