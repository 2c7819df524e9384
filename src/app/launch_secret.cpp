#include "app/launch_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "app/launch_loop.h"
#include "app/launch_tee.h"
#include "core/console.h"
#include "core/error.h"
#include "core/sha256.h"

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

/// The file appears whole, or another launcher's stays.
void make_secret_file(const fs::path& file) {
    std::string secret;
    for (const char byte : unpredictable_bytes(secret_bits / 8))
        secret += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    const fs::path partial = fmt::format("{}.{}.partial", file.native(), getpid());
    {
        const FileDescriptor made(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!made.is_open()) fail(file, "made");
        write_all(made.number(), secret + "\n");
    }
    const bool linked = link(partial.c_str(), file.c_str()) == 0 || errno == EEXIST;
    const int reason = errno;
    unlink(partial.c_str());
    errno = reason;
    if (!linked) fail(file, "made");
}

std::string read_own_file(const FileDescriptor& opened, const fs::path& file) {
    struct stat facts {};
    if (fstat(opened.number(), &facts) != 0) fail(file, "read");
    constexpr mode_t of_others = 077;
    if (!S_ISREG(facts.st_mode) || (facts.st_mode & of_others) != 0 ||
        (facts.st_uid != geteuid() && geteuid() != 0))
        throw Error(fmt::format("The secret file {} is not a file that you alone may read.", file.native()),
                    fmt::format("chmod 600 {0} if it is yours.", file.native()));
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
        fmt::format("Give {} to {}, which nobody can guess; where the file is not there, node 0 makes "
                    "one.",
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
            throw Error(fmt::format("The secret file {} is not there.", file.native()),
                        "Node 0 makes it; where the folder is not shared, copy it to every node.");
        if (!std::exchange(told, true))
            print_log(stderr, "drover: Waiting for the secret file {}, which node 0 makes.\n", file.native());
        std::this_thread::sleep_for(250ms);
    }
}

}  // namespace drover
