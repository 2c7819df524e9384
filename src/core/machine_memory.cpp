#include "core/machine_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/arena.h"
#include "core/number_text.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::size_t installed_memory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

std::size_t free_swap() {
    struct sysinfo state {};
    return sysinfo(&state) == 0 ? static_cast<std::size_t>(state.freeswap) * state.mem_unit : 0;
}

bool has_word(const std::string& list, std::string_view word) {
    std::istringstream words(list);
    for (std::string one; std::getline(words, one, ',');)
        if (one == word) return true;
    return false;
}

/// A hierarchy of groups that limits memory: version 2, or version 1's for memory.
struct Hierarchy {
    bool unified = false;
    fs::path root, mounted_at;  ///< the group that is mounted there

    const char* limit_file() const { return unified ? "memory.max" : "memory.limit_in_bytes"; }
};

/// Lines are "36 35 98:0 /group /mounted/at options … - type source options".
std::vector<Hierarchy> mounted_hierarchies(const fs::path& proc) {
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
        if (hierarchy.unified || (type == "cgroup" && has_word(options, "memory")))
            found.push_back(std::move(hierarchy));
    }
    return found;
}

/// This process's group in a hierarchy. Lines are "4:memory:/group", or "0::/group" for version 2.
std::optional<fs::path> own_group(const fs::path& proc, bool unified) {
    std::ifstream file(proc / "self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (unified ? controllers.empty() : has_word(controllers, "memory")) return line.substr(second + 1);
    }
    return std::nullopt;
}

std::optional<std::size_t> limit_in(const fs::path& file) {
    std::ifstream stream(file);
    std::size_t bytes = 0;
    if (stream >> bytes) return bytes;  // "max" is no number
    return std::nullopt;
}

void lower(std::optional<std::size_t>& limit, std::optional<std::size_t> other) {
    if (other && (!limit || *other < *limit)) limit = other;
}

}  // namespace

std::optional<std::size_t> control_group_limit(const fs::path& root) {
    const fs::path proc = root / "proc";
    std::optional<std::size_t> limit;
    for (const Hierarchy& hierarchy : mounted_hierarchies(proc)) {
        const fs::path top = root / hierarchy.mounted_at.relative_path();
        lower(limit, limit_in(top / hierarchy.limit_file()));
        const std::optional<fs::path> group = own_group(proc, hierarchy.unified);
        if (!group) continue;
        // A container may see its group under another name, or have it mounted as the top.
        const fs::path below = group->lexically_relative(hierarchy.root);
        fs::path folder = top;
        for (const fs::path& name : below) {
            if (name == ".." || name == ".") break;
            folder /= name;
            lower(limit, limit_in(folder / hierarchy.limit_file()));
        }
    }
    return limit;
}

std::size_t usable_memory() {
    const std::size_t installed = installed_memory();
    return std::min(installed, control_group_limit().value_or(installed));
}

std::size_t allocatable_memory() {
    const std::size_t all = installed_memory() + free_swap();
    return std::min(all, control_group_limit().value_or(all));
}

std::optional<std::size_t> address_space_left() {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::size_t used = pages * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

std::string memory_limits_text() {
    std::string text = fmt::format("the machine has {}", bytes_text(installed_memory()));
    if (const std::size_t swap = free_swap(); swap > 0)
        text += fmt::format(" and {} of free swap", bytes_text(swap));
    if (const auto limit = control_group_limit(); limit && *limit < installed_memory())
        text += fmt::format(", of which its control group may take {}", bytes_text(*limit));
    if (const auto left = address_space_left())
        text += fmt::format("; `ulimit -v` leaves this process {}", bytes_text(*left));
    return text;
}

}  // namespace drover
