#include "io/file_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <utility>

namespace drover::test {
namespace {

std::mutex mutex;
bool recording = false;          // under the mutex
std::vector<std::string> calls;  // under the mutex

void record(const std::string& call) {
    const int error_number = errno;
    const std::lock_guard lock(mutex);
    if (recording) calls.push_back(call);
    errno = error_number;
}

std::string name_of(const std::filesystem::path& path) {
    return path.filename().string();
}

}  // namespace

FileCalls::FileCalls() {
    const std::lock_guard lock(mutex);
    recording = true;
    calls.clear();
}

FileCalls::~FileCalls() {
    const std::lock_guard lock(mutex);
    recording = false;
}

std::vector<std::string> FileCalls::take() {
    const std::lock_guard lock(mutex);
    return std::exchange(calls, {});
}

}  // namespace drover::test

// A program's own functions take precedence over the C library's, so all its code calls these.

extern "C" int fsync(int descriptor) {
    std::error_code unknown;
    const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), unknown);
    drover::test::record("fsync " + drover::test::name_of(path));
    return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
    drover::test::record(fmt::format("rename {} {}", drover::test::name_of(from), drover::test::name_of(to)));
    return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
    drover::test::record(
        fmt::format("exchange {} {}", drover::test::name_of(from), drover::test::name_of(to)));
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
