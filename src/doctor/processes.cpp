#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "core/number_text.h"
#include "doctor/sections.h"
#include "launch/job.h"
#include "run/launch_environment.h"

namespace drover {
namespace {

/// Of a file system; absent when there is none.
std::optional<std::size_t> size_of_file_system(const std::filesystem::path& folder) {
    struct statvfs status {};
    if (statvfs(folder.c_str(), &status) != 0) return std::nullopt;
    return static_cast<std::size_t>(status.f_blocks) * status.f_frsize;
}

/// "4.1" of "4.1.4", and of "Open MPI 4.1.4".
std::string series_of(const std::string& version) {
    const std::size_t begin = version.find_first_of("0123456789");
    if (begin == std::string::npos) return {};
    const std::size_t first = version.find('.', begin);
    return version.substr(begin, first == std::string::npos ? first : version.find('.', first + 1) - begin);
}

/// Returns mpirun's version; empty if there is none that can be used.
std::string examine_mpirun(ReportSection& section, const ExaminedModule& mpi) {
    try {
        const Mpirun mpirun = find_mpirun();
        section.facts["mpirun"] = {{"file", mpirun.file.string()}, {"version", mpirun.version}};
        if (mpi.loaded && series_of(mpirun.version) != series_of(mpi.library)) {
            section.problem(
                fmt::format(
                    "{} is of Open MPI {}, but the module mpi uses {}: processes that it starts do not find "
                    "each other.",
                    mpirun.file.string(), mpirun.version, mpi.library),
                "Put the mpirun of the same Open MPI first in PATH, or build with the other one.");
            return {};
        }
        section.ok(fmt::format("{} of Open MPI {}.", mpirun.file.string(), mpirun.version));
        return mpirun.version;
    } catch (const Error& error) {
        section.note(error.cause(), error.remedy());
        return {};
    }
}

void examine_launcher(ReportSection& section) {
    try {
        const LaunchEnvironment launch = read_launch_environment();
        section.facts["processes"] = launch.processes;
        section.facts["rank"] = launch.rank;
        if (launch.foreign) {
            refuse_foreign_launcher(launch, "run_clm …");
        } else if (launch.has_others())
            section.ok(fmt::format("This is process {} of {} that a launcher started ({}).", launch.rank,
                                   launch.processes, launch.told_by));
    } catch (const Error& error) {
        section.problem(error);
    }
}

void examine_shared_memory(ReportSection& section, const std::filesystem::path& root, bool used) {
    const auto bytes = size_of_file_system(root / "dev/shm");
    section.facts["shared_memory"] = bytes ? Json(*bytes) : Json();
    constexpr std::size_t little = std::size_t{256} << 20;  // Docker gives containers 64 MiB
    if (!used) return;
    if (!bytes)
        section.note("There is no /dev/shm, through which processes and GPUs of one machine exchange data.",
                     "Mount a tmpfs there.");
    else if (*bytes < little)
        section.note(fmt::format("/dev/shm has {}, which is little for processes and GPUs that exchange data "
                                 "through it.",
                                 bytes_text(*bytes)),
                     "Start the container with --shm-size=8g or --ipc=host.");
    else
        section.ok(fmt::format("/dev/shm has {}.", bytes_text(*bytes)));
}

/// Only network cards that read memory by themselves need it locked.
void examine_locked_memory(ReportSection& section, const std::filesystem::path& root) {
    rlimit limit{};
    std::error_code unknown;
    const bool unlimited = getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
    section.facts["locked_memory_limit"] = unlimited ? Json() : Json(limit.rlim_cur);
    if (unlimited || !std::filesystem::exists(root / "dev/infiniband", unknown)) return;
    section.note(
        fmt::format("There is an InfiniBand or RoCE card, but `ulimit -l` lets processes lock only {}.",
                    bytes_text(limit.rlim_cur)),
        "Raise it with `ulimit -l unlimited` (containers: --ulimit memlock=-1), on every machine.");
}

}  // namespace

ReportSection processes_section(const DoctorSettings& settings, const ExaminedModule& mpi,
                                std::size_t gpu_count) {
    ReportSection section{.key = "processes", .title = "Several processes"};
    section.facts["mpi"] = mpi.library;
    const std::string version = examine_mpirun(section, mpi);
    examine_launcher(section);
    examine_shared_memory(section, settings.root, mpi.loaded || gpu_count > 1);
    examine_locked_memory(section, settings.root);
    section.abilities.push_back({"processes", "several processes", mpi.loaded && !version.empty(),
                                 !mpi.loaded       ? "the module mpi cannot be used"
                                 : version.empty() ? "there is no mpirun for it"
                                                   : fmt::format("Open MPI {}", version)});
    return section;
}

}  // namespace drover
