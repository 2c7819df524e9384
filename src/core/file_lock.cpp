#include "core/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace drover {

FileLock::FileLock(const std::filesystem::path& path, Afterwards afterwards)
    : path_(path), afterwards_(afterwards) {
    const auto fail = [&] {
        throw Error(fmt::format("Cannot lock {}: {}.", path.string(), std::strerror(errno)),
                    "Check the folder's permissions and that its file system supports locks.");
    };
    for (;;) {
        descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (descriptor_ < 0) fail();
        int result = 0;
        do result = flock(descriptor_, LOCK_EX);
        while (result != 0 && errno == EINTR);
        if (result != 0) {
            const int reason = errno;
            close(descriptor_);
            errno = reason;
            fail();
        }
        // The previous holder may have removed the file while we waited; then our lock is on a file that no
        // other process sees.
        struct stat held {
        }, named{};
        if (fstat(descriptor_, &held) == 0 && stat(path.c_str(), &named) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev)
            return;
        close(descriptor_);
    }
}

FileLock::~FileLock() {
    if (afterwards_ == Afterwards::removed) unlink(path_.c_str());
    close(descriptor_);
}

}  // namespace drover
