#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/control_group.h"
#include "core/machine_memory.h"
#include "support/golden.h"

namespace drover::test {

/// A tree with /proc/self and mounted control groups, as a process might see them.
class GroupTree {
  public:
    GroupTree(const std::string& own_groups, const std::string& mounts) {
        write("proc/self/cgroup", own_groups);
        write("proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" + mounts);
    }
    void write(const std::string& name, const std::string& text) {
        const std::filesystem::path file = folder_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    std::optional<std::size_t> limit() const { return control_group_limit(folder_.path()); }
    std::optional<double> quota() const { return processor_quota(folder_.path()); }

  private:
    TemporaryFolder folder_;
};

}  // namespace drover::test
