#include "launch/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/console.h"
#include "core/error.h"
#include "core/sha256.h"
#include "launch/loop.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t secret_bits = 128, least_characters = 16, most_characters = 4096;

[[noreturn]] void fail(const fs::path& file, std::string_view verb) {
    throw Error(
        fmt::format("The secret file {} cannot be {}: {}.", file.native(), verb, std::strerror(errno)),
        "Name a file of your own with --secret_file.");
}

/// Writes everything to the disk and closes the file. False with errno on failure.
bool write_whole(int file, std::string_view bytes) {
    bool written = true;
    while (written && !bytes.empty()) {
        const ssize_t count = write(file, bytes.data(), bytes.size());
        written = count >= 0 || errno == EINTR;
        if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    written = written && fsync(file) == 0;
    const int reason = errno;
    if (close(file) != 0 && written) return false;
    errno = reason;
    return written;
}

/// Keeps an existing file. False with errno on failure. Some file systems have no hard links, others cannot
/// rename without replacing.
bool put_in_place(const std::string& partial, const fs::path& file) {
    return link(partial.c_str(), file.c_str()) == 0 || errno == EEXIST ||
           renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) == 0 ||
           errno == EEXIST;
}

/// Creates the file atomically; keeps another launcher's.
void make_secret_file(const fs::path& file) {
    std::string secret;
    for (const char byte : unpredictable_bytes(secret_bits / 8))
        secret += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    std::string partial = file.native() + ".partial.XXXXXX";
    const int made = mkostemp(partial.data(), O_CLOEXEC);  // with mode 600
    if (made < 0) fail(file, "made");
    const bool is_there = write_whole(made, secret + "\n") && put_in_place(partial, file);
    const int reason = errno;
    unlink(partial.c_str());
    errno = reason;
    if (!is_there) fail(file, "made");
}

std::string read_own_file(const FileDescriptor& opened, const fs::path& file) {
    struct stat facts {};
    if (fstat(opened.number(), &facts) != 0) fail(file, "read");
    if (!S_ISREG(facts.st_mode))
        throw Error(fmt::format("The secret file {} is not a regular file.", file.native()),
                    "Name a file that holds the secret and nothing else.");
    if (facts.st_uid != geteuid() && facts.st_uid != 0)
        throw Error(fmt::format("The secret file {} belongs to another user.", file.native()),
                    "Name a file of your own or of root's with --secret_file.");
    // Kubernetes makes a secret owned by root readable to a container through the container's group.
    const mode_t of_others = facts.st_uid == geteuid() ? 077 : 037;
    if ((facts.st_mode & of_others) != 0)
        throw Error(fmt::format("The secret file {} may be read or changed by others.", file.native()),
                    fmt::format("chmod 600 {}", file.native()));
    std::array<char, most_characters + 2> buffer;
    const ssize_t count = read(opened.number(), buffer.data(), buffer.size());
    if (count < 0) fail(file, "read");
    std::string secret(buffer.data(), static_cast<std::size_t>(count));
    while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
    return secret;
}

}  // namespace

void check_secret(const std::string& secret, const std::string& source) {
    if (secret.size() >= least_characters && secret.size() <= most_characters) return;
    throw Error(
        fmt::format("The secret of {} has {} characters.", source, secret.size()),
        fmt::format("Give {} to {}, which nobody can guess; if the file does not exist, node 0 creates one.",
                    least_characters, most_characters));
}

std::string read_secret_file(const fs::path& file, bool is_node_0, std::chrono::seconds at_most) {
    const auto deadline = std::chrono::steady_clock::now() + at_most;
    for (bool told = false;;) {
        const FileDescriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (opened.is_open()) {
            const std::string secret = read_own_file(opened, file);
            check_secret(secret, file.native());
            return secret;
        }
        if (errno != ENOENT) fail(file, "read");
        if (is_node_0) {
            make_secret_file(file);
            print_log(stderr, "drover: {} has a new secret; every node of the job needs this file.\n",
                      file.native());
            continue;
        }
        if (std::chrono::steady_clock::now() > deadline)
            throw Error(fmt::format("The secret file {} does not exist.", file.native()),
                        "Node 0 creates it; where the folder is not shared, copy it to every node.");
        if (!std::exchange(told, true))
            print_log(stderr, "drover: Waiting for the secret file {}, which node 0 creates.\n",
                      file.native());
        std::this_thread::sleep_for(250ms);
    }
}

}  // namespace drover
