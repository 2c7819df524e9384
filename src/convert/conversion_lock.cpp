#include "convert/conversion_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace drover {
namespace {

/// Whether the open file still has its name: the one before may have removed it in the meantime.
bool is_still_there(int descriptor, const std::filesystem::path& file) {
    struct stat opened {
    }, named{};
    return fstat(descriptor, &opened) == 0 && stat(file.c_str(), &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

ConversionLock::ConversionLock(const std::filesystem::path& folder) : file_(folder / file_name) {
    while (true) {
        descriptor_ = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (descriptor_ < 0)
            throw Error(fmt::format("Cannot write to {}: {}.", folder.string(), std::strerror(errno)),
                        "Check --output_dir.");
        if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(descriptor_);
            throw Error(fmt::format("Another process is converting into {}.", folder.string()),
                        "Wait until it is done, or choose another --output_dir.");
        }
        if (is_still_there(descriptor_, file_)) return;
        close(descriptor_);
    }
}

ConversionLock::~ConversionLock() {
    unlink(file_.c_str());
    close(descriptor_);
}

}  // namespace drover
