#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "doctor/build_facts.h"
#include "doctor/gpu_driver.h"
#include "doctor/modules.h"
#include "doctor/report.h"

/// The sections of `drover doctor`. Each looks at one thing and reports what it finds; a machine that does
/// not tell something is no error.
namespace drover {

/// What is examined, and where.
struct DoctorSettings {
    BuildFacts build{};
    std::filesystem::path output_folder = ".";
    bool network = false;              ///< may the Hub be asked
    std::filesystem::path root = "/";  ///< where /proc, /sys and /etc are looked for
};

/// The program and the system that it runs on.
ReportSection program_section(const DoctorSettings& settings);
/// The environment variables that a run reads, as `drover run_clm` reads them.
ReportSection variables_section();
ReportSection cpu_section(const DoctorSettings& settings);
ReportSection memory_section(const DoctorSettings& settings);
/// `cuda` and `nccl` are the modules of these names.
ReportSection gpu_section(const DoctorSettings& settings, const GpuDriver& driver, const ExaminedModule& cuda,
                          const ExaminedModule& nccl);
ReportSection modules_section(const DoctorSettings& settings, const std::vector<ExaminedModule>& modules,
                              const GpuDriver& driver);
/// What several processes need: MPI, shared memory, locked memory. `mpi` is the module.
ReportSection processes_section(const DoctorSettings& settings, const ExaminedModule& mpi,
                                std::size_t gpu_count);
/// Measures the output folder and the folder of token files.
ReportSection disk_section(const DoctorSettings& settings);
ReportSection caches_section();
/// `curl` is the module.
ReportSection hub_section(const DoctorSettings& settings, const ExaminedModule& curl);

}  // namespace drover
