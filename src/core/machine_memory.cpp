#include "core/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace drover {

std::optional<std::size_t> memory_limit_of_group(const std::filesystem::path& folder) {
    for (const char* name : {"memory.max", "memory/memory.limit_in_bytes"}) {
        std::ifstream file(folder / name);
        std::size_t bytes = 0;
        if (file >> bytes) return bytes;  // "max" is no number
    }
    return std::nullopt;
}

std::size_t usable_memory() {
    const std::size_t installed =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    return std::min(installed, memory_limit_of_group("/sys/fs/cgroup").value_or(installed));
}

}  // namespace drover
