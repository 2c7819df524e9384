#include "doctor/disk_speed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/stopwatch.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

/// A file larger than `ulimit -f` would end the program with this signal.
class IgnoredSizeSignal {
  public:
    IgnoredSizeSignal() : before_(signal(SIGXFSZ, SIG_IGN)) {}
    ~IgnoredSizeSignal() { signal(SIGXFSZ, before_); }
    IgnoredSizeSignal(const IgnoredSizeSignal&) = delete;
    IgnoredSizeSignal& operator=(const IgnoredSizeSignal&) = delete;

  private:
    void (*before_)(int);
};

/// An open file without a name in `folder`.
class NamelessFile {
  public:
    explicit NamelessFile(const fs::path& folder)
        : descriptor_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
        if (descriptor_ >= 0 ||
            (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
            return;
        // A file system without such files.
        const fs::path named = folder / fmt::format(".drover-doctor-{}", getpid());
        descriptor_ = open(named.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        const int reason = errno;
        if (descriptor_ >= 0) unlink(named.c_str());
        errno = reason;
    }
    ~NamelessFile() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    NamelessFile(const NamelessFile&) = delete;
    NamelessFile& operator=(const NamelessFile&) = delete;
    int descriptor() const { return descriptor_; }

  private:
    int descriptor_;
};

/// Bytes that a file system cannot compress.
std::vector<char> noise() {
    std::vector<char> bytes(piece_bytes);
    std::uint32_t state = 1;
    for (char& byte : bytes) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<char>(state >> 24);
    }
    return bytes;
}

/// False, with errno, when not all of it could be written.
bool write_piece(int file, const std::vector<char>& piece) {
    for (std::size_t done = 0; done < piece.size();) {
        const ssize_t count = write(file, piece.data() + done, piece.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        done += static_cast<std::size_t>(count);
    }
    return true;
}

std::uint64_t most_bytes(const fs::path& folder) {
    std::error_code unknown;
    const fs::space_info space = fs::space(folder, unknown);
    constexpr std::uint64_t most = std::uint64_t{256} << 20;
    return unknown ? most : std::clamp<std::uint64_t>(space.available / 10, piece_bytes, most);
}

void write_for(double seconds, int file, const std::vector<char>& piece, std::uint64_t most,
               DiskSpeed& speed) {
    const Stopwatch watch;
    // The disk is waited for after 1, 2, 4, … pieces, so that the time is kept on slow ones too.
    for (std::size_t batch = 1; speed.bytes < most && watch.seconds() < seconds;
         batch = std::min(2 * batch, std::size_t{32})) {
        for (std::size_t i = 0; i < batch && speed.bytes < most; ++i, speed.bytes += piece.size())
            if (!write_piece(file, piece)) {
                speed.failure = std::strerror(errno);
                return;
            }
        if (fsync(file) != 0) {
            speed.failure = std::strerror(errno);
            return;
        }
    }
    speed.write_rate = static_cast<double>(speed.bytes) / watch.seconds();
}

void read_for(double seconds, int file, const std::vector<char>& piece, DiskSpeed& speed) {
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    std::vector<char> read(piece.size());
    std::uint64_t done = 0;
    const Stopwatch watch;
    while (done < speed.bytes && watch.seconds() < seconds) {
        const ssize_t count = pread(file, read.data(), read.size(), static_cast<off_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        const std::size_t from = done % piece.size(),
                          length = std::min<std::size_t>(count, piece.size() - from);
        speed.damaged = speed.damaged || std::memcmp(read.data(), piece.data() + from, length) != 0;
        done += length;
    }
    speed.damaged = speed.damaged || done == 0;
    speed.read_rate = static_cast<double>(done) / watch.seconds();
}

}  // namespace

DiskSpeed measure_disk(const fs::path& folder, double seconds) {
    DiskSpeed speed;
    const IgnoredSizeSignal ignored;
    const NamelessFile file(folder);
    if (file.descriptor() < 0) {
        speed.failure = std::strerror(errno);
        return speed;
    }
    const std::vector<char> piece = noise();
    write_for(0.6 * seconds, file.descriptor(), piece, most_bytes(folder), speed);
    if (speed.failure.empty()) read_for(0.4 * seconds, file.descriptor(), piece, speed);
    return speed;
}

std::string why_not_writable(const fs::path& folder) {
    std::error_code unknown;
    if (!fs::is_directory(folder, unknown)) return "it is not a folder";
    const NamelessFile file(folder);
    return file.descriptor() < 0 ? std::strerror(errno) : "";
}

std::string file_system_name(const fs::path& folder) {
    struct statfs status {};
    if (statfs(folder.c_str(), &status) != 0) return {};
    struct Named {
        std::uint32_t number;
        const char* name;
    };
    constexpr std::array names{
        Named{0xEF53, "ext4"},       Named{0x58465342, "xfs"},      Named{0x9123683E, "btrfs"},
        Named{0x01021994, "tmpfs"},  Named{0x794C7630, "overlay"},  Named{0x6969, "nfs"},
        Named{0x0BD00BD0, "lustre"}, Named{0x65735546, "fuse"},     Named{0x2FC12FC1, "zfs"},
        Named{0xFF534D42, "cifs"},   Named{0xFE534D42, "smb2"},     Named{0x47504653, "gpfs"},
        Named{0x01021997, "9p"},     Named{0x6A656A63, "virtiofs"}, Named{0x00C36400, "ceph"},
        Named{0x19830326, "beegfs"}};
    for (const Named& one : names)
        if (one.number == static_cast<std::uint32_t>(status.f_type)) return one.name;
    return {};
}

}  // namespace drover
