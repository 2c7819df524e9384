#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>

#include "core/existing_folder.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "data/packing/token_cache.h"
#include "doctor/disk_speed.h"
#include "doctor/sections.h"
#include "hub/places.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Of the file system that a folder is on; absent when it cannot be told.
std::optional<dev_t> device_of(const fs::path& folder) {
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) return std::nullopt;
    return status.st_dev;
}

/// One folder that a run writes to.
struct ExaminedFolder {
    std::string role;  ///< "output folder"
    fs::path folder{}, existing{};
    std::string remedy;  ///< when nothing can be written there
};

void examine_space(ReportSection& section, const ExaminedFolder& folder, std::uint64_t free,
                   const std::string& kind) {
    constexpr std::uint64_t little = std::uint64_t{5} << 30;
    if (free < little)
        section.note(fmt::format("The {} has only {} left.", folder.role, bytes_text(free)),
                     "A checkpoint of a model with a billion parameters takes 12 GB (--save_total_limit, "
                     "--save_only_model).");
    if (kind == "tmpfs")
        section.note(
            fmt::format("The {} is in memory (tmpfs): it takes memory from the run, and is gone after a "
                        "restart.",
                        folder.role),
            "Use a folder on a disk.");
}

/// Speed and space. `measured_before` names the folder that was measured on the same file system.
void examine_folder(ReportSection& section, const ExaminedFolder& folder, std::string_view key,
                    const std::string& measured_before) {
    std::error_code unknown;
    const std::string not_made =
        folder.existing == folder.folder
            ? ""
            : fmt::format(" (not made yet; measured in {})", folder.existing.string());
    const fs::space_info space = fs::space(folder.existing, unknown);
    const std::string kind = file_system_name(folder.existing);
    Json& facts = section.facts[std::string(key)];
    facts = {{"folder", folder.folder.string()}, {"file_system", kind}};
    if (!unknown) facts["free"] = space.available;
    const std::string where = fmt::format("The {} {}", folder.role, folder.folder.string());
    const std::string reason = why_not_writable(folder.existing);
    DiskSpeed speed;
    if (!reason.empty())
        speed.failure = reason;
    else if (measured_before.empty())
        speed = measure_disk(folder.existing, 0.7);
    facts["writable"] = speed.failure.empty();
    if (!speed.failure.empty())
        return section.stopper(fmt::format("{} cannot be written to: {}.", where, speed.failure),
                               folder.remedy);
    const std::string free = unknown ? "" : fmt::format(": {} free", bytes_text(space.available));
    const std::string on = kind.empty() ? "" : fmt::format(" on {}", kind);
    if (!measured_before.empty()) {
        section.ok(
            fmt::format("{}{}{}{}; the same disk as the {}.", where, not_made, free, on, measured_before));
        return;
    }
    facts["write_bytes_per_second"] = speed.write_rate;
    facts["read_bytes_per_second"] = speed.read_rate;
    if (speed.damaged)
        return section.stopper(fmt::format("{} gives back other bytes than were written.", where),
                               "Use another disk, and check this one (dmesg).");
    const auto rate = [](double bytes) { return bytes_text(static_cast<std::size_t>(bytes)) + "/s"; };
    section.ok(fmt::format("{}{}{}{}; it wrote {} and read {} ({}).", where, not_made, free, on,
                           rate(speed.write_rate), rate(speed.read_rate), bytes_text(speed.bytes)));
    constexpr double slow = 50e6;
    if (speed.write_rate < slow)
        section.note(fmt::format("The disk of the {} is slow: a checkpoint of 10 GB takes {:.0f} minutes.",
                                 folder.role, 10e9 / speed.write_rate / 60),
                     "Save less often (--save_steps), or on another disk.");
    if (!unknown) examine_space(section, folder, space.available, kind);
}

/// A file larger than this cannot be written.
void examine_file_limit(ReportSection& section) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    section.facts["file_size_limit"] = limit.rlim_cur;
    section.note(fmt::format("`ulimit -f` lets files have at most {}.", bytes_text(limit.rlim_cur)),
                 "Raise it with `ulimit -f unlimited`: checkpoints have large files.");
}

/// The bytes of the files in a folder, as far as they could be counted in a short time.
struct FolderSize {
    std::uint64_t bytes = 0;
    bool complete = true;
};

FolderSize size_of_folder(const fs::path& folder) {
    constexpr double most_seconds = 0.3;
    const Stopwatch watch;
    FolderSize size;
    std::error_code failure, unknown;
    constexpr auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator it(folder, options, failure), end; !failure && it != end;
         it.increment(failure)) {
        if (watch.seconds() > most_seconds) {
            size.complete = false;
            break;
        }
        if (it->is_symlink(unknown) || !it->is_regular_file(unknown)) continue;
        const std::uint64_t bytes = it->file_size(unknown);
        if (!unknown) size.bytes += bytes;
    }
    return size;
}

/// `needed`: a run cannot do without it.
void examine_cache(ReportSection& section, const std::string& key, const std::string& name, bool needed,
                   const fs::path& folder, const std::string& remedy) {
    std::error_code unknown;
    const bool exists = fs::exists(folder, unknown);
    const FolderSize size = exists ? size_of_folder(folder) : FolderSize{};
    const std::string reason = why_not_writable(existing_folder(folder));
    section.facts[key] = {{"folder", folder.string()},
                          {"exists", exists},
                          {"bytes", size.bytes},
                          {"bytes_complete", size.complete},
                          {"writable", reason.empty()}};
    const std::string text =
        fmt::format("{}: {}, {}", name, folder.string(),
                    !exists ? "not made yet"
                            : fmt::format("{}{}", size.complete ? "" : "more than ", bytes_text(size.bytes)));
    if (!folder.is_absolute() && !needed)
        section.note(text + "; that is in the folder in which a run is started.", remedy);
    else if (reason.empty())
        section.ok(text + ".");
    else
        section.problem(fmt::format("{}; it cannot be written to: {}.", text, reason), remedy);
    section.stops_training = section.stops_training || (needed && !reason.empty());
}

/// The place of a folder that was named as "." or "out/".
fs::path full_path(const fs::path& folder) {
    std::error_code unknown;
    const fs::path absolute = fs::absolute(folder, unknown).lexically_normal();
    if (unknown) return folder;
    return absolute.has_filename() || !absolute.has_relative_path() ? absolute : absolute.parent_path();
}

}  // namespace

ReportSection disk_section(const DoctorSettings& settings) {
    ReportSection section{.key = "disk", .title = "Disk"};
    const ExaminedFolder output{
        .role = "output folder",
        .folder = full_path(settings.output_folder),
        .existing = full_path(existing_folder(settings.output_folder)),
        .remedy =
            "Give a folder that you may write to, with space left: as --dir here, as --output_dir of "
            "a run."};
    examine_folder(section, output, "output", "");
    examine_file_limit(section);
    const fs::path folder = default_notes_folder().parent_path();
    // The section of caches says whether there is such a folder that can be written to.
    if (folder.empty() || !why_not_writable(existing_folder(folder)).empty()) return section;
    const ExaminedFolder tokens{.role = "folder of token files",
                                .folder = full_path(folder),
                                .existing = full_path(existing_folder(folder)),
                                .remedy = "Set DROVER_CACHE to a folder that you may write to."};
    const auto device = device_of(tokens.existing);
    const bool same = device && device == device_of(output.existing);
    examine_folder(section, tokens, "tokens", same ? output.role : "");
    return section;
}

ReportSection caches_section() {
    ReportSection section{.key = "caches", .title = "Caches"};
    const fs::path tokens = default_notes_folder().parent_path();
    if (tokens.empty())
        section.stopper("There is no folder for the cache: neither DROVER_CACHE nor HOME is set.",
                        "Set DROVER_CACHE to a folder.");
    else
        examine_cache(section, "tokens", "Token files", true, tokens,
                      "Set DROVER_CACHE to a folder that you may write to.");
    examine_cache(section, "hub", "Hub", false, hub_cache_folder(),
                  hub_cache_folder().is_absolute()
                      ? "Set HF_HOME or HF_HUB_CACHE to a folder that you may write to."
                      : "Set HOME or HF_HOME to a folder.");
    return section;
}

}  // namespace drover
