#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace drover {

/// The host memory that the processes of this container may use together: what is installed, or less if their
/// control group is limited.
std::size_t usable_memory();

/// The most that can be allocated: the same plus the machine's free swap, which a control group's limit does
/// not include.
std::size_t allocatable_memory();

/// The smallest limit of this process's control group and of those that hold it, of either version; absent
/// when there is none. `root` is where /proc and the mounted groups are looked for.
std::optional<std::size_t> control_group_limit(const std::filesystem::path& root = "/");

/// Address space that this process may still use (RLIMIT_AS, `ulimit -v`); absent without a limit.
std::optional<std::size_t> address_space_left();

/// All of this as text: "the machine has 31.0 GiB, of which its control group may take 4.00 GiB".
std::string memory_limits_text();

}  // namespace drover
