#include "run/run_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "run/settings/run_settings.h"

namespace drover {

RunLog::RunLog(const Processes& processes, const LogSettings& settings)
    : is_first_(processes.is_first()),
      log_(open_log(processes, settings)),
      messages_(choose(processes, settings)) {}

RunLog::File RunLog::open_log(const Processes& processes, const LogSettings& settings) {
    const auto& folder = settings.folder_of_ranks;
    if (!folder || processes.is_first()) return nullptr;
    std::filesystem::create_directories(*folder);
    const std::filesystem::path path = *folder / fmt::format("rank-{}.log", processes.group.rank());
    // A program may do several runs one after the other.
    static std::set<std::filesystem::path> begun;
    File file(std::fopen(path.c_str(), begun.insert(path).second ? "w" : "a"));
    if (!file)
        throw Error(
            fmt::format("--rank_log_dir: {} cannot be written: {}.", path.string(), std::strerror(errno)),
            "Name a folder that can be written.");
    return file;
}

Messages RunLog::choose(const Processes& processes, const LogSettings& settings) const {
    if (is_first_) return Messages(settings.level);
    const std::string before = fmt::format("[rank {}] ", processes.group.rank());
    if (settings.on_each_machine && processes.machine.rank == 0)
        return Messages(settings.level, stderr, before);
    if (log_) return Messages(settings.replica_level.value_or(settings.level), log_.get());
    return Messages(settings.replica_level.value_or("critical"), stderr, before);
}

}  // namespace drover
