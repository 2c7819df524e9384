#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace drover {

/// A control group of Linux, with which containers and batch systems limit what processes may use.
struct ControlGroup {
    std::filesystem::path folder;  ///< that holds its limits
    bool unified = false;          ///< of version 2
};

/// The groups whose limits of "memory", "cpu" and so on hold for this process: in each mounted hierarchy
/// from its top down to the process's own. `root` is where /proc and the hierarchies are looked for.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

/// The processors' time that this process's groups may use together, in processors (2.5: five seconds in
/// two); absent when they are not limited.
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

}  // namespace drover
