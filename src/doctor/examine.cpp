#include "doctor/examine.h"

#include <fmt/format.h>

#include <exception>
#include <functional>

#include "core/machine_identity.h"

namespace drover {
namespace {

/// The section that `look` makes, or one that says why it could not.
ReportSection guarded(const char* key, const char* title, const std::function<ReportSection()>& look) {
    try {
        return look();
    } catch (const std::exception& failure) {
        ReportSection section{.key = key, .title = title};
        section.note(fmt::format("This could not be examined: {}.", failure.what()));
        return section;
    }
}

}  // namespace

Report examine_machine(const DoctorSettings& settings) {
    const std::vector<ExaminedModule> modules = examine_modules(settings.build);
    const GpuDriver driver = ask_gpu_driver(settings.root);
    const auto module = [&](std::string_view name) -> const ExaminedModule& {
        for (const ExaminedModule& one : modules)
            if (one.kind.use.name == name) return one;
        bug("a module that is not in the list");
    };
    Report report{.heading = fmt::format("{} on {}", version_line(settings.build), host_name())};
    const auto add = [&](const char* key, const char* title, const std::function<ReportSection()>& look) {
        report.sections.push_back(guarded(key, title, look));
    };
    add("program", "Program", [&] { return program_section(settings); });
    add("variables", "Environment variables", [] { return variables_section(); });
    add("cpu", "CPU", [&] { return cpu_section(settings); });
    add("memory", "Memory", [&] { return memory_section(settings); });
    add("gpu", "GPUs", [&] { return gpu_section(settings, driver, module("cuda"), module("nccl")); });
    add("modules", "Modules", [&] { return modules_section(settings, modules, driver); });
    add("processes", "Several processes",
        [&] { return processes_section(settings, module("mpi"), driver.gpus.size()); });
    add("disk", "Disk", [&] { return disk_section(settings); });
    add("caches", "Caches", [] { return caches_section(); });
    add("hub", "Hugging Face Hub", [&] { return hub_section(settings, module("curl")); });
    return report;
}

}  // namespace drover
