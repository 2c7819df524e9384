#include "run/speech.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

namespace drover {

Speech::Speech(const RunProcesses& processes, const Arguments& arguments)
    : is_first_(processes.is_first()),
      log_(open_log(processes, arguments)),
      messages_(choose(processes, arguments)) {}

Speech::File Speech::open_log(const RunProcesses& processes, const Arguments& arguments) {
    const auto folder = arguments.optional_text("rank_log_dir");
    if (!folder || processes.is_first()) return nullptr;
    std::filesystem::create_directories(*folder);
    const std::filesystem::path path =
        std::filesystem::path(*folder) / fmt::format("rank-{}.log", processes.ranks.rank());
    // A program may have several runs one after the other.
    static std::set<std::filesystem::path> begun;
    File file(std::fopen(path.c_str(), begun.insert(path).second ? "w" : "a"));
    if (!file)
        throw Error(
            fmt::format("--rank_log_dir: {} cannot be written: {}.", path.string(), std::strerror(errno)),
            "Name a folder that can be written.");
    return file;
}

Messages Speech::choose(const RunProcesses& processes, const Arguments& arguments) const {
    // A dry run is asked for what it says.
    const std::string level = arguments.flag("dry_run") ? "info" : arguments.text("log_level");
    if (is_first_) return Messages(level);
    const std::string before = fmt::format("[rank {}] ", processes.ranks.rank());
    if (arguments.flag("log_on_each_node") && processes.machine.rank == 0)
        return Messages(level, stderr, before);
    const bool said = arguments.given("log_level_replica");
    const std::string replica = said ? arguments.text("log_level_replica") : level;
    if (log_) return Messages(replica, log_.get());
    return Messages(said ? replica : "critical", stderr, before);
}

}  // namespace drover
