#include "core/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"

namespace drover {

std::string read_text_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path))
        throw Error(
            fmt::format("Cannot read {}: {}.", path.string(),
                        std::filesystem::is_directory(path) ? "it is a folder" : std::strerror(errno)),
            "Check the path and its permissions.");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    const std::filesystem::path partial = path.string() + ".partial";
    const auto fail = [&](std::string_view verb) {
        const std::string reason = std::strerror(errno);
        std::error_code ignored;
        std::filesystem::remove(partial, ignored);
        throw Error(fmt::format("Cannot {} {}: {}.", verb, path.string(), reason),
                    "Check the folder's permissions and the free space.");
    };
    const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) fail("create");
    std::size_t written = 0;
    while (written < content.size()) {
        const ssize_t count = write(file, content.data() + written, content.size() - written);
        if (count < 0) {
            if (errno == EINTR) continue;
            const int reason = errno;
            close(file);
            errno = reason;
            fail("write");
        }
        written += static_cast<std::size_t>(count);
    }
    const bool synced = fsync(file) == 0;
    if (close(file) != 0 || !synced) fail("write");
    if (rename(partial.c_str(), path.c_str()) != 0) fail("rename");
}

}  // namespace drover
