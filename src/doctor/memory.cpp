#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/machine_memory.h"
#include "core/number_text.h"
#include "doctor/sections.h"
#include "doctor/system_files.h"

namespace drover {
namespace {

/// Of a line of /proc/meminfo; 0 when it is not there.
std::size_t bytes_in(const std::string& meminfo, std::string_view key) {
    std::size_t kibibytes = 0;
    std::istringstream(line_of(meminfo, key)) >> kibibytes;
    return kibibytes * 1024;
}

/// Of "always [madvise] never" "madvise"; empty when the kernel has no such pages, or does not tell.
std::string huge_pages(const std::filesystem::path& root) {
    const std::string text = system_text(root / "sys/kernel/mm/transparent_hugepage/enabled");
    const std::size_t begin = text.find('['), end = text.find(']');
    return begin == std::string::npos || end < begin ? "" : text.substr(begin + 1, end - begin - 1);
}

}  // namespace

ReportSection memory_section(const DoctorSettings& settings) {
    ReportSection section{.key = "memory", .title = "Memory"};
    const std::string meminfo = system_text(settings.root / "proc/meminfo");
    const std::size_t total = bytes_in(meminfo, "MemTotal"), available = bytes_in(meminfo, "MemAvailable"),
                      swap = bytes_in(meminfo, "SwapFree");
    const auto limit = control_group_limit(settings.root);
    const auto address_space = address_space_left();
    const std::string pages = huge_pages(settings.root);
    const auto fact = [](std::optional<std::size_t> bytes) { return bytes ? Json(*bytes) : Json(); };
    section.facts = {{"total", total},
                     {"available", available},
                     {"free_swap", swap},
                     {"control_group_limit", fact(limit)},
                     {"address_space_left", fact(address_space)},
                     {"transparent_huge_pages", pages}};
    if (total == 0)
        section.note("The kernel does not tell how much memory there is (/proc/meminfo).");
    else
        section.ok(fmt::format("{} installed, {} available{}.", bytes_text(total), bytes_text(available),
                               swap > 0 ? fmt::format(", {} of free swap", bytes_text(swap)) : ""));
    if (limit && (total == 0 || *limit < total))
        section.note(fmt::format("The control group (container, batch job) may take {}.", bytes_text(*limit)),
                     "A run that needs more is refused before it starts; give the container or job more.");
    if (address_space)
        section.note(
            fmt::format("`ulimit -v` leaves this process {} of address space.", bytes_text(*address_space)),
            "Raise it with `ulimit -v unlimited`.");
    constexpr std::size_t little = std::size_t{1} << 30;
    if (available > 0 && available < little)
        section.note(
            fmt::format("Only {} are available; other programs have the rest.", bytes_text(available)),
            "End programs that are not needed, or train a small model.");
    if (pages == "never")
        section.note("Transparent huge pages are off, which makes access to large tensors slower.",
                     "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    return section;
}

}  // namespace drover
