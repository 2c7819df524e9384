#include "core/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

/// Closes a file descriptor when the block is left.
struct FileDescriptor {
    int number;
    explicit FileDescriptor(int descriptor) : number(descriptor) {}
    ~FileDescriptor() {
        if (number >= 0) close(number);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    const auto refuse = [&](std::string_view reason) {
        throw Error(fmt::format("Cannot read {}: {}.", path.string(), reason),
                    "Check the path and its permissions.");
    };
    // Without O_NONBLOCK opening a named pipe would wait for a writer.
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.number < 0) refuse(std::strerror(errno));
    struct stat status {};
    if (fstat(file.number, &status) != 0) refuse(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!S_ISREG(status.st_mode)) refuse("it is not a regular file");
    if (status.st_size == 0) return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const map = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (map == MAP_FAILED) refuse(std::strerror(errno));
    map_ = map;
    size_ = size;
}

MappedFile::~MappedFile() {
    if (map_ != nullptr) munmap(map_, size_);
}

void MappedFile::forget() const {
    // A shared mapping of a file that is never written: nothing is lost, and a failure does not matter.
    if (map_ != nullptr) madvise(map_, size_, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(size_, other.size_);
    return *this;
}

namespace {

// All of this runs inside a signal handler, after which the program ends: only system calls, and no memory
// but this. Memory overwritten by the handler's frame is not used again.

std::atomic_flag handled = ATOMIC_FLAG_INIT;

/// A line of /proc/self/maps: "7f12a000-7f12b000 r--s 00000000 08:01 1234   /path".
struct MapsLine {
    char text[8192];
    std::size_t size = 0;

    /// The file whose mapping holds `address`; null if the line is of another mapping.
    const char* file_at(std::uintptr_t address) {
        text[size < sizeof text ? size : sizeof text - 1] = '\0';
        const char* at = text;
        const std::uintptr_t begin = number(at), end = *at == '-' ? number(++at) : 0;
        const char* const file = std::strchr(text, '/');
        return begin <= address && address < end ? file : nullptr;
    }

    /// Whether the mapping that file_at() found can be written.
    bool is_writable() const {
        const char* const rights = std::strchr(text, ' ');
        return rights != nullptr && rights[1] != '\0' && rights[2] == 'w';
    }

  private:
    static std::uintptr_t number(const char*& at) {
        std::uintptr_t value = 0;
        for (;; ++at) {
            if (*at >= '0' && *at <= '9')
                value = value * 16 + static_cast<std::uintptr_t>(*at - '0');
            else if (*at >= 'a' && *at <= 'f')
                value = value * 16 + static_cast<std::uintptr_t>(*at - 'a' + 10);
            else
                return value;
        }
    }
};

MapsLine line;

const char* file_mapped_at(std::uintptr_t address) {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) return nullptr;
    static char buffer[4096];
    for (;;) {
        const ssize_t count = read(maps, buffer, sizeof buffer);
        if (count <= 0) return nullptr;
        for (ssize_t i = 0; i < count; ++i) {
            if (buffer[i] != '\n') {
                if (line.size < sizeof line.text) line.text[line.size++] = buffer[i];
                continue;
            }
            if (const char* const file = line.file_at(address)) return file;
            line.size = 0;
        }
    }
}

void say(const char* text) {
    for (std::size_t left = std::strlen(text); left > 0;) {
        const ssize_t written = write(STDERR_FILENO, text, left);
        if (written <= 0) return;
        text += written;
        left -= static_cast<std::size_t>(written);
    }
}

void handle(int number, siginfo_t* info, void*) {
    while (handled.test_and_set()) pause();  // another thread is handling it, and ends the program
    const char* const file = info->si_code == BUS_ADRERR
                                 ? file_mapped_at(reinterpret_cast<std::uintptr_t>(info->si_addr))
                                 : nullptr;
    if (file == nullptr) {
        signal(number, SIG_DFL);
        raise(number);  // delivered when this returns; ends the program
        return;
    }
    say("drover: ");
    say(file);
    constexpr char shared_memory[] = "/dev/shm/";
    if (line.is_writable() || std::strncmp(file, shared_memory, sizeof shared_memory - 1) == 0)
        say(" cannot be written: its file system is full, or somebody made it shorter. Give that file system "
            "more space and start again; what was saved before is intact.\n");
    else
        say(" became shorter while it was read, or its disk failed. Put the whole file back and start again; "
            "what was saved before is intact.\n");
    _exit(1);
}

}  // namespace

void name_shortened_files() {
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace drover
