#include <fmt/format.h>

#include <cstdlib>

#include "backend/cuda/gpu.h"
#include "core/number_text.h"
#include "doctor/sections.h"

namespace drover {
namespace {

std::string given_variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Why there is no GPU to use: what it looks like decides whether that is a problem.
void explain_absence(ReportSection& section, const GpuDriver& driver) {
    const std::string hidden =
        std::getenv("CUDA_VISIBLE_DEVICES") == nullptr
            ? ""
            : fmt::format(" (CUDA_VISIBLE_DEVICES is \"{}\")", given_variable("CUDA_VISIBLE_DEVICES"));
    if (!driver.installed && driver.gpus_on_bus == 0)
        section.note("There is no NVIDIA GPU and no driver, so runs use the CPU.");
    else if (!driver.installed)
        section.problem(
            fmt::format("The machine has {}, but not the driver's library: {}.",
                        counted(static_cast<std::int64_t>(driver.gpus_on_bus), "NVIDIA GPU"), driver.failure),
            "Install NVIDIA's driver; start a container with --gpus all (NVIDIA Container Toolkit), "
            "Slurm's jobs with --gpus.");
    else if (driver.gpus_on_bus > 0 && hidden.empty())
        section.problem(
            fmt::format("The driver shows no GPU to this process: {}.", driver.failure),
            "If nvidia-smi fails too, restart the machine or install the driver again; in a container "
            "or job, ask for GPUs.");
    else
        section.note(fmt::format("The driver shows no GPU to this process{}: {}.", hidden, driver.failure),
                     hidden.empty() ? "In a container or job, ask for GPUs (--gpus all)."
                                    : "Unset CUDA_VISIBLE_DEVICES to use every GPU.");
}

/// What keeps the module from this GPU; empty if nothing does.
Finding obstacle_of(const GpuFacts& gpu, const GpuDriver& driver, const ExaminedModule& module) {
    const std::string architectures = module.facts.value("architectures", "");
    const int runtime = module.facts.value("runtime_version", 0);
    if (gpu.prohibited)
        return {Mark::problem, "its compute mode lets no program use it",
                "As root: nvidia-smi --compute-mode DEFAULT"};
    // A driver runs every CUDA of its own major version.
    if (driver.cuda_version / 1000 < runtime / 1000)
        return {Mark::problem,
                fmt::format("its driver knows CUDA up to {}, and the module needs {}",
                            cuda_version_text(driver.cuda_version), cuda_version_text(runtime)),
                fmt::format("Install a newer driver, or build with CUDA {}.", driver.cuda_version / 1000)};
    const cuda::Capability capability{gpu.major, gpu.minor};
    if (capability < cuda::oldest_capability)
        return {Mark::problem,
                fmt::format("it is too old: drover needs compute capability {} or later",
                            cuda::text_of(cuda::oldest_capability)),
                "Train on a newer GPU, or on the CPU."};
    if (code_for(architectures, gpu.major, gpu.minor) == GpuCode::none)
        return {Mark::problem, fmt::format("the module has no code for it, only for {}", architectures),
                fmt::format("Build with -DDROVER_CUDA_ARCHITECTURES={}, or =release for all GPUs.",
                            cuda::architecture_of(capability))};
    return {};
}

}  // namespace

ReportSection gpu_section(const DoctorSettings&, const GpuDriver& driver, const ExaminedModule& module,
                          const ExaminedModule& nccl) {
    ReportSection section{.key = "gpu", .title = "GPUs"};
    section.facts = {{"driver_installed", driver.installed},
                     {"driver_version", driver.version},
                     {"driver_cuda_version", driver.cuda_version},
                     {"visible_devices", std::getenv("CUDA_VISIBLE_DEVICES") == nullptr
                                             ? Json()
                                             : Json(given_variable("CUDA_VISIBLE_DEVICES"))},
                     {"failure", driver.failure},
                     {"gpus", Json::array()}};
    std::size_t usable = 0;
    std::string reason = driver.gpus.empty() ? "no GPU is seen" : "the module cuda cannot be used";
    if (driver.gpus.empty()) explain_absence(section, driver);
    for (std::size_t i = 0; i < driver.gpus.size(); ++i) {
        const GpuFacts& gpu = driver.gpus[i];
        const Finding obstacle = module.loaded ? obstacle_of(gpu, driver, module) : Finding{};
        const bool works = module.loaded && obstacle.text.empty();
        usable += works ? 1 : 0;
        section.facts["gpus"].push_back({{"name", gpu.name},
                                         {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                                         {"memory", gpu.bytes},
                                         {"free_memory", gpu.free_bytes ? Json(*gpu.free_bytes) : Json()},
                                         {"bus_id", gpu.bus_id},
                                         {"usable", works}});
        const std::string text =
            fmt::format("{}: {}, compute capability {}.{}, {}{}", i, gpu.name, gpu.major, gpu.minor,
                        bytes_text(gpu.bytes),
                        gpu.free_bytes ? fmt::format(", {} free", bytes_text(*gpu.free_bytes)) : "");
        if (obstacle.text.empty()) {
            section.ok(text + ".");
        } else {
            reason = obstacle.text;
            section.problem(fmt::format("{}; {}.", text, obstacle.text), obstacle.remedy);
        }
        if (works && code_for(module.facts.value("architectures", ""), gpu.major, gpu.minor) == GpuCode::ptx)
            section.note(
                fmt::format("The module has no machine code for GPU {}, so its driver compiles the kernels: "
                            "the first start is slow.",
                            i),
                fmt::format("Build with -DDROVER_CUDA_ARCHITECTURES={} on or for such a machine.",
                            cuda::architecture_of({gpu.major, gpu.minor})));
        if (gpu.free_bytes && *gpu.free_bytes < gpu.bytes / 2)
            section.note(fmt::format("More than half of GPU {}'s memory is taken.", i),
                         "nvidia-smi shows by which programs.");
    }
    if (!driver.gpus.empty())
        section.ok(fmt::format("Driver {}, for CUDA up to {}.",
                               driver.version.empty() ? "of unknown version" : driver.version,
                               cuda_version_text(driver.cuda_version)));
    if (!driver.gpus.empty() && !module.loaded) section.problem(module.failure, module.remedy);
    section.abilities.push_back({"gpu", "train on a GPU", usable > 0,
                                 usable > 0 ? counted(static_cast<std::int64_t>(usable), "GPU") : reason});
    if (driver.gpus.size() > 1)
        section.abilities.push_back({"gpus", "train on several GPUs", usable > 1 && nccl.loaded,
                                     usable < 2    ? reason
                                     : nccl.loaded ? nccl.library
                                                   : "the module nccl cannot be used"});
    return section;
}

}  // namespace drover
