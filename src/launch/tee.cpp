#include "launch/tee.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace drover {

LaunchLog::LaunchLog(const std::filesystem::path& file) {
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    descriptor_ =
        FileDescriptor(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!descriptor_.is_open())
        throw Error(fmt::format("The log {} cannot be written: {}.", file.native(), std::strerror(errno)),
                    "Name another with --log.");
}

void LaunchLog::write(std::string_view bytes) {
    write_all(descriptor_.number(), bytes);
}

void write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
        if (count > 0)
            bytes.remove_prefix(static_cast<std::size_t>(count));
        else if (errno != EINTR)
            return;  // a full disk must not end the job
    }
}

PipeReader::PipeReader(LaunchLoop& loop, FileDescriptor& pipe, std::function<void(std::string_view)> take)
    : loop_(loop), pipe_(pipe), take_(std::move(take)) {
    loop_.watch(pipe_.number(), [this] { read_on(); });
}

PipeReader::~PipeReader() {
    if (pipe_.is_open()) loop_.forget(pipe_.number());
}

bool PipeReader::read_on() {
    if (!pipe_.is_open()) return false;
    std::array<char, 65536> buffer;
    const ssize_t count = read(pipe_.number(), buffer.data(), buffer.size());
    if (count > 0) {
        take_({buffer.data(), static_cast<std::size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        loop_.forget(pipe_.number());
        pipe_.close();
    }
    return count > 0;
}

}  // namespace drover
