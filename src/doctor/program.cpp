#include <fmt/format.h>
#include <sys/utsname.h>

#include <ctime>

#include "core/this_process.h"
#include "doctor/sections.h"
#include "doctor/system_files.h"

namespace drover {
namespace {

/// "Debian GNU/Linux 12 (bookworm)".
std::string name_of_system(const std::filesystem::path& root) {
    const std::string name = line_of(system_text(root / "etc/os-release"), "PRETTY_NAME");
    return name.empty() ? "an unnamed Linux" : name;
}

/// Certificates are refused before they begin to be valid.
bool clock_is_behind() {
    constexpr std::time_t year_2025 = 1'735'689'600;
    return std::time(nullptr) < year_2025;
}

}  // namespace

ReportSection program_section(const DoctorSettings& settings) {
    const BuildFacts& build = settings.build;
    utsname kernel{};
    uname(&kernel);
    const std::string system = name_of_system(settings.root);
    ReportSection section{.key = "program", .title = "Program"};
    section.facts = {{"version", build.version},
                     {"commit", build.commit.empty() ? Json() : Json(build.commit)},
                     {"modified", build.modified},
                     {"build_type", build.type},
                     {"compiler", build.compiler},
                     {"cuda", build.cuda.empty() ? Json() : Json(build.cuda)},
                     {"architectures", build.architectures},
                     {"file", program_path().string()},
                     {"system", system},
                     {"kernel", std::string(kernel.release)},
                     {"processor", std::string(kernel.machine)}};
    const std::string text = fmt::format("{}; {}.", version_line(build), build_line(build));
    if (build.type.starts_with("Release"))
        section.ok(text);
    else
        section.note(text, "Build with `cmake --preset release`: other builds train many times slower.");
    section.ok(fmt::format("{}, Linux {}, {}.", system, kernel.release, kernel.machine));
    if (clock_is_behind())
        section.problem("The clock is behind, so that the certificates of servers seem not to be valid yet.",
                        "Set the machine's clock.");
    return section;
}

}  // namespace drover
