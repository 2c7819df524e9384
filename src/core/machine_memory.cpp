#include "core/machine_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/arena.h"
#include "core/control_group.h"
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
    std::optional<std::size_t> limit;
    for (const ControlGroup& group : control_groups("memory", root))
        lower(limit, limit_in(group.folder / (group.unified ? "memory.max" : "memory.limit_in_bytes")));
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
