#include "core/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace drover {
namespace {

namespace fs = std::filesystem;

bool has_word(const std::string& list, std::string_view word) {
    std::istringstream words(list);
    for (std::string one; std::getline(words, one, ',');)
        if (one == word) return true;
    return false;
}

/// A hierarchy of groups: version 2, or one of version 1 with this controller.
struct Hierarchy {
    bool unified = false;
    fs::path root, mounted_at;  ///< the group that is mounted there
};

/// Lines are "36 35 98:0 /group /mounted/at options … - type source options".
std::vector<Hierarchy> mounted_hierarchies(std::string_view controller, const fs::path& proc) {
    std::vector<Hierarchy> found;
    std::ifstream file(proc / "self/mountinfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string skipped, type, options;
        Hierarchy hierarchy;
        fields >> skipped >> skipped >> skipped >> hierarchy.root >> hierarchy.mounted_at;
        while (fields >> skipped && skipped != "-") continue;
        fields >> type >> skipped >> options;
        hierarchy.unified = type == "cgroup2";
        if (hierarchy.unified || (type == "cgroup" && has_word(options, controller)))
            found.push_back(std::move(hierarchy));
    }
    return found;
}

/// This process's group in a hierarchy. Lines are "4:memory:/group", or "0::/group" for version 2.
std::optional<fs::path> own_group(std::string_view controller, const fs::path& proc, bool unified) {
    std::ifstream file(proc / "self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (unified ? controllers.empty() : has_word(controllers, controller)) return line.substr(second + 1);
    }
    return std::nullopt;
}

/// cpu.max is "50000 100000" or "max 100000"; version 1 has a file for each number, and −1 for no limit.
std::optional<double> quota_of(const ControlGroup& group) {
    double quota = 0, period = 0;
    if (group.unified) {
        std::ifstream(group.folder / "cpu.max") >> quota >> period;
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
        std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return std::nullopt;
    return quota / period;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
    const fs::path proc = root / "proc";
    std::vector<ControlGroup> groups;
    for (const Hierarchy& hierarchy : mounted_hierarchies(controller, proc)) {
        fs::path folder = root / hierarchy.mounted_at.relative_path();
        groups.push_back({folder, hierarchy.unified});
        const std::optional<fs::path> group = own_group(controller, proc, hierarchy.unified);
        if (!group) continue;
        // A container may see its group under another name, or have it mounted as the top.
        for (const fs::path& name : group->lexically_relative(hierarchy.root)) {
            if (name == ".." || name == ".") break;
            folder /= name;
            groups.push_back({folder, hierarchy.unified});
        }
    }
    return groups;
}

std::optional<double> processor_quota(const fs::path& root) {
    std::optional<double> smallest;
    for (const ControlGroup& group : control_groups("cpu", root))
        if (const auto quota = quota_of(group)) smallest = std::min(*quota, smallest.value_or(*quota));
    return smallest;
}

}  // namespace drover
