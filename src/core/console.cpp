#include "core/console.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace drover {
namespace {

/// 0, or the reason why not all of the text was written.
int write_and_flush(std::FILE* out, std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0) return 0;
    return errno != 0 ? errno : EIO;
}

/// The name of the file that `out` writes to, if the system knows it.
std::string name_of(std::FILE* out) {
    std::error_code unknown;
    const std::filesystem::path path =
        std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fileno(out)), unknown);
    const std::string known = unknown ? "" : path.string();
    if (out == stdout) return known.empty() ? "Standard output" : fmt::format("Standard output ({})", known);
    return known.empty() ? "A log" : fmt::format("The log {}", known);
}

}  // namespace

void write_log(std::FILE* out, std::string_view text) {
    const bool failed_before = std::ferror(out) != 0;
    const int reason = write_and_flush(out, text);
    if (reason == 0 || failed_before || out == stderr) return;
    write_and_flush(stderr, fmt::format("drover: {} cannot be written: {}. Its output is lost.\n",
                                        name_of(out), std::strerror(reason)));
}

void write_result(std::string_view text) {
    if (const int reason = write_and_flush(stdout, text); reason != 0)
        throw Error(fmt::format("{} cannot be written: {}.", name_of(stdout), std::strerror(reason)),
                    "Check the free space, or send the output somewhere else.");
}

}  // namespace drover
