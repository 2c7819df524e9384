#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "backend/backend.h"
#include "backend/cpu/tiles/amx_probe.h"
#include "core/control_group.h"
#include "core/number_text.h"
#include "doctor/sections.h"
#include "doctor/system_files.h"
#include "run/choose_backend.h"

namespace drover {
namespace {

/// Processors that this process may run on; 0 when the system does not tell.
int allowed_processors() {
    // A machine may have more processors than cpu_set_t has room for.
    for (int room = CPU_SETSIZE; room <= 1 << 16; room *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(room));
        if (set == nullptr) return 0;
        const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
        const bool told = sched_getaffinity(0, bytes, set) == 0;
        const int count = told ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (told) return count;
    }
    return 0;
}

/// Whether CPUID lists AMX's tiles and their bf16 products.
bool lists_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & amx_bf16) && (edx & amx_tile);
}

std::vector<std::string> instruction_sets_found() {
    std::vector<std::string> found;
    if (__builtin_cpu_supports("x86-64-v3")) found.emplace_back("AVX2");
    if (__builtin_cpu_supports("x86-64-v4")) found.emplace_back("AVX-512");
    if (__builtin_cpu_supports("avx512bf16")) found.emplace_back("AVX512-BF16");
    if (cpu::tiles::amx_usable()) found.emplace_back("AMX");
    return found;
}

std::string listed(const std::vector<std::string>& names) {
    if (names.size() < 2) return names.empty() ? "none that is used" : names[0];
    const std::vector<std::string> first(names.begin(), names.end() - 1);
    return fmt::format("{} and {}", fmt::join(first, ", "), names.back());
}

/// How many threads OpenMP starts beside how many can run.
void examine_threads(ReportSection& section, int allowed, std::optional<double> quota) {
    const int threads = omp_get_max_threads();
    const char* asked = std::getenv("OMP_NUM_THREADS");
    const int usable = quota ? std::min(allowed, static_cast<int>(std::ceil(*quota))) : allowed;
    if (usable < 1) return;
    if (threads > usable)
        section.note(
            fmt::format("A run starts {}, but {}: the threads would wait for each other.",
                        counted(threads, "thread"),
                        quota && usable < allowed
                            ? fmt::format("the control group may use {:.3g} processors' time", *quota)
                            : fmt::format("this process may use {}", counted(usable, "processor"))),
            fmt::format("Set OMP_NUM_THREADS={} or give --threads {}.", usable, usable));
    else if (threads < usable && asked != nullptr)
        section.note(fmt::format("A run uses {} of {}, because OMP_NUM_THREADS is {}.",
                                 counted(threads, "thread"), counted(usable, "processor"), asked),
                     "Unset it, unless other processes are to have the rest.");
}

void examine_load(ReportSection& section, const std::filesystem::path& root, int processors) {
    double load = 0;
    std::istringstream(system_text(root / "proc/loadavg")) >> load;
    section.facts["load"] = load;
    if (processors > 0 && load > processors)
        section.note(fmt::format("The machine is busy: its load was {:.1f} on {} in the last minute.", load,
                                 counted(processors, "processor")),
                     "A run is slower while other programs compute.");
}

}  // namespace

ReportSection cpu_section(const DoctorSettings& settings) {
    ReportSection section{.key = "cpu", .title = "CPU"};
    const std::string model = line_of(system_text(settings.root / "proc/cpuinfo"), "model name");
    const int installed = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), allowed = allowed_processors();
    const std::optional<double> quota = processor_quota(settings.root);
    const std::vector<std::string> found = instruction_sets_found();
    section.facts = {{"model", model},
                     {"processors", installed},
                     {"allowed", allowed},
                     {"quota", quota ? Json(*quota) : Json()},
                     {"instructions", found},
                     {"lists_amx", lists_amx()},
                     {"threads", omp_get_max_threads()}};
    section.ok(fmt::format(
        "{}: {}{}{}.", model.empty() ? "A processor without a name" : model, counted(installed, "processor"),
        allowed > 0 && allowed < installed ? fmt::format(", of which this process may use {}", allowed) : "",
        quota ? fmt::format(", the time of {:.3g} for its control group", *quota) : ""));
    Ability training{.key = "cpu", .name = "train on the CPU"};
    try {
        const std::string used =
            make_chosen_backend("cpu")->description().substr(std::string("CPU, ").size());
        section.facts["used"] = used;
        section.ok(fmt::format("It has {}; a run uses {}.", listed(found), used));
        training.possible = true;
        training.how = used;
    } catch (const Error& error) {
        section.stopper(error);
        training.how = error.cause();
    }
    if (lists_amx() && !cpu::tiles::amx_usable())
        section.note(
            "The processor lists AMX, but a product tried with it did not work: the kernel or the hypervisor "
            "keeps it from programs.",
            "bf16 products use AVX-512 instead; for AMX, use Linux 5.16 or newer and a virtual machine that "
            "has it.");
    if (const char* level = std::getenv("DROVER_CPU_ISA"); level != nullptr && training.possible)
        section.note(fmt::format("DROVER_CPU_ISA is {}, so no better instructions are used.", level),
                     "Unset it to use the best that the processor has.");
    examine_threads(section, allowed, quota);
    examine_load(section, settings.root, installed);
    section.abilities.push_back(std::move(training));
    return section;
}

}  // namespace drover
